"""Qwen2 and Qwen3, dense and with experts, whose GGUF files store rows of Q and K as Hugging Face
does.

llama.cpp has experts in every layer of these families; it divides the weights of the chosen by
their sum in Qwen3 and not in Qwen2, and no key of its files says which.

Files of Qwen3-VL are of its text alone; how many layers take something of a picture
(n_deepstack_layers) is of no use to it and is not written.

Source: llama.cpp models/qwen2.cpp, qwen2moe.cpp, qwen3.cpp, qwen3moe.cpp, qwen3vl.cpp,
qwen3vlmoe.cpp; conversion/qwen.py, qwen3vl.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    BLOCK,
    EXPERT_COUNTS,
    EXPERTS,
    FOLDER_EXPERTS,
    HEAD_NORMS,
    KEYS,
    NO_WINDOW,
    NORMED,
    PRE_NORMS,
    SILU,
    TOP,
    keys_with_kv_heads,
    with_defaults,
)
from headrace.weights.model_config.config_reader import ConfigReader


def _windows_are_off(config: ConfigReader, entries: dict[str, Any]) -> None:
    """A config may state a window and, beside it, that it is not used; GGUF has no word for it."""
    del entries
    config.expect("use_sliding_window", bool, (False,), False)
    config.unused("sliding_window", "max_window_layers")


QWEN2 = Architecture(
    name="qwen2",
    model_type="qwen2",
    hf_class="Qwen2ForCausalLM",
    block=BLOCK,
    top=TOP,
    keys=keys_with_kv_heads(32),
    accepted={**SILU, **NO_WINDOW, "attention_bias": (True,), "mlp_bias": (False,)},
    writes=_windows_are_off,
)

# llama.cpp has no name for it: a file is one of Qwen2, which it is but for layers that are not run.
MIMO = replace(
    QWEN2,
    model_type="mimo",
    hf_class="MiMoForCausalLM",
    accepted={**QWEN2.accepted, "num_nextn_predict_layers": ()},
    is_this=lambda keys: False,
)

QWEN3 = Architecture(
    name="qwen3",
    model_type="qwen3",
    hf_class="Qwen3ForCausalLM",
    silent_head_dim=128,
    block={**BLOCK, **HEAD_NORMS},
    top=TOP,
    keys=KEYS,
    accepted={**SILU, **NO_WINDOW},
    writes=_windows_are_off,
    bias_keys={"attention_bias": ATTENTION_BIAS},
)


def _experts_in_every_layer(config: ConfigReader, *, normed: bool) -> None:
    config.expect("decoder_sparse_step", int, (1,), 1)
    if dense := config.raw("mlp_only_layers"):
        config.refuse("mlp_only_layers", dense, "[]")
    config.expect("norm_topk_prob", bool, (normed,), False)


def _write_qwen2_moe(config: ConfigReader, entries: dict[str, Any]) -> None:
    _windows_are_off(config, entries)
    _experts_in_every_layer(config, normed=False)


def _write_qwen3_moe(config: ConfigReader, entries: dict[str, Any]) -> None:
    _windows_are_off(config, entries)
    _experts_in_every_layer(config, normed=True)


QWEN2_MOE = Architecture(
    name="qwen2moe",
    model_type="qwen2_moe",
    hf_class="Qwen2MoeForCausalLM",
    block={
        **PRE_NORMS,
        **ATTENTION,
        "ffn_gate_inp": "mlp.gate",
        "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
        "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
        "ffn_up_shexp": "mlp.shared_expert.up_proj",
        "ffn_down_shexp": "mlp.shared_expert.down_proj",
    },
    top=TOP,
    keys=(
        *keys_with_kv_heads(16),
        *with_defaults(EXPERT_COUNTS, 60, 4),
        Key("expert_feed_forward_length", "moe_intermediate_size", in_config=1408),
        Key("expert_shared_feed_forward_length", "shared_expert_intermediate_size", in_config=5632),
    ),
    head_dim=False,
    implied={"norm_topk_prob": False},
    accepted={**SILU, **NO_WINDOW},
    neutral={NORMED: False},
    writes=_write_qwen2_moe,
    bias_keys={"qkv_bias": ATTENTION_BIAS[:3]},
    experts=EXPERTS,
    folder_experts=FOLDER_EXPERTS,
    single_rows=("mlp.shared_expert_gate",),
    routers=("mlp.gate",),
)

QWEN3_MOE = Architecture(
    name="qwen3moe",
    model_type="qwen3_moe",
    hf_class="Qwen3MoeForCausalLM",
    block={**PRE_NORMS, **ATTENTION, **HEAD_NORMS, "ffn_gate_inp": "mlp.gate"},
    top=TOP,
    keys=(
        *keys_with_kv_heads(4),
        *with_defaults(EXPERT_COUNTS, 128, 8),
        Key("expert_feed_forward_length", "moe_intermediate_size", in_config=768),
    ),
    implied={"norm_topk_prob": True},
    accepted={
        **SILU,
        **NO_WINDOW,
        "qkv_bias": (False,),
        "use_qk_norm": (True,),
        "shared_expert_intermediate_size": (0,),
    },
    neutral={NORMED: True},
    writes=_write_qwen3_moe,
    bias_keys={"attention_bias": ATTENTION_BIAS},
    experts=EXPERTS,
    folder_experts=FOLDER_EXPERTS,
    routers=("mlp.gate",),
)


_AXES, _DEEPSTACK = "rope.dimension_sections", "n_deepstack_layers"
_QWEN3_VL_AXES = [24, 20, 20]
"""Pairs of dimensions that follow time, height and width; llama.cpp has room for a fourth axis."""


def _read_axes(keys: GGUFKeys, config: dict[str, Any]) -> None:
    """Shares of each axis, which config.json has among the words of its rope."""
    keys.take(_DEEPSTACK)
    shares = keys.take(_AXES)
    if not (isinstance(shares, np.ndarray) and shares.dtype.kind in "iu" and 3 <= len(shares) <= 4):
        raise keys.error(_AXES, shares, "three or four whole numbers are required")
    scaling = config.get("rope_scaling") or {"rope_type": "default"}
    axes = {"mrope_section": shares[:3].tolist(), "mrope_interleaved": True}
    config["rope_scaling"] = {**scaling, **axes}


def _write_axes(config: ConfigReader, entries: dict[str, Any]) -> None:
    shares: Any = None
    for key in ("rope_parameters", "rope_scaling"):
        stated = config.raw(key)
        shares = stated.get("mrope_section", shares) if isinstance(stated, dict) else shares
    shares = _QWEN3_VL_AXES if shares is None else list(shares)
    if len(shares) != 3:
        config.refuse("mrope_section", shares, "3 numbers")
    entries[_AXES] = [*shares, 0]


def _write_qwen3_vl_moe(config: ConfigReader, entries: dict[str, Any]) -> None:
    _write_axes(config, entries)
    config.expect("decoder_sparse_step", int, (1,), 1)
    if dense := config.raw("mlp_only_layers"):
        config.refuse("mlp_only_layers", dense, "[]")


QWEN3_VL = replace(
    QWEN3,
    name="qwen3vl",
    model_type="qwen3_vl_text",
    hf_class="Qwen3VLForConditionalGeneration",
    null_head_dim=True,
    keys=keys_with_kv_heads(32),
    rope_theta=500000.0,
    accepted=SILU,
    reads=_read_axes,
    writes=_write_axes,
)

QWEN3_VL_MOE = replace(
    QWEN3_MOE,
    name="qwen3vlmoe",
    model_type="qwen3_vl_moe_text",
    hf_class="Qwen3VLMoeForConditionalGeneration",
    keys=(
        *keys_with_kv_heads(16),
        *with_defaults(EXPERT_COUNTS, 60, 4),
        Key("expert_feed_forward_length", "moe_intermediate_size", in_config=1408),
    ),
    rope_theta=500000.0,
    accepted=SILU,
    reads=_read_axes,
    writes=_write_qwen3_vl_moe,
    stacked_in_folders=True,
    turned_stacks="joined",
)
