"""ERNIE 4.5, dense and with experts: rows of Q and K interleaved in both containers.

llama.cpp has no biases in these architectures, experts in every layer behind the first dense ones,
and no key for the least sum that the weights of experts are divided by.

Source: llama.cpp models/ernie4-5.cpp, ernie4-5-moe.cpp, conversion/ernie.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.glm import DENSE_LAYERS, read_count
from headrace.weights.architectures.shared import (
    ATTENTION,
    BLOCK,
    EXPERTS,
    FOLDER_EXPERTS,
    GATED_MLP,
    NORMED,
    PRE_NORMS,
    SILU,
    SIZES,
    TOP,
)
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.config_reader import ConfigReader

_INTERLEAVED = Conventions(rope_layout="interleaved")
_SHARED_COUNT, _SHARED_WIDTH = "expert_shared_count", "expert_shared_feed_forward_length"
_STEP = "interleave_moe_layer_step"
LEAST_SUM = 1e-12
"""The published moe_norm_min."""
_DEFAULTS = {"context_length": 131072, "attention.head_count_kv": 2}


def _keys(defaults: dict[str, int]) -> tuple[Key, ...]:
    sizes = (replace(key, in_config=defaults.get(key.gguf, key.in_config)) for key in SIZES)
    eps = Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5)
    return (*sizes, eps)


ERNIE = Architecture(
    name="ernie4_5",
    model_type="ernie4_5",
    hf_class="Ernie4_5ForCausalLM",
    block=BLOCK,
    top=TOP,
    keys=_keys(_DEFAULTS),
    silent_head_dim=128,
    null_head_dim=True,
    rope_theta=5e5,
    implied={"use_bias": False},
    accepted=SILU,
    gguf=_INTERLEAVED,
    hf=_INTERLEAVED,
)


def read_least_sum(config: ConfigReader) -> None:
    """`moe_norm_min`, which changes nothing as published; larger ones stop whoever reads them."""
    least = config.positive("moe_norm_min", LEAST_SUM)
    if least > np.float32(LEAST_SUM):
        config.refuse("moe_norm_min", least, f"at most {LEAST_SUM}")


def _read_moe(keys: GGUFKeys, config: dict[str, Any]) -> None:
    """Where a file says nothing of shared experts there are none."""
    layers, width = config["num_hidden_layers"], config["moe_intermediate_size"]
    config["moe_layer_start_index"] = read_count(keys, DENSE_LAYERS, layers + 1)
    if (step := keys.size(_STEP)) not in (None, 1):
        raise keys.error(_STEP, step, "experts in every layer behind the dense ones are required")
    count, shared = read_count(keys, _SHARED_COUNT, 1 << 16), keys.size(_SHARED_WIDTH) or 0
    if shared != count * width:
        raise keys.error(_SHARED_WIDTH, shared, f"{count} experts of {width} values are required")
    config["moe_num_shared_experts"] = count


def _write_moe(config: ConfigReader, entries: dict[str, Any]) -> None:
    layers = entries["block_count"]
    read_least_sum(config)
    config.expect("moe_layer_interval", int, (1,), 1)
    config.expect("moe_layer_end_index", int, (-1, layers - 1), -1)
    entries[_STEP] = 1
    entries[DENSE_LAYERS] = config.get("moe_layer_start_index", int, 1)
    if shared := config.get("moe_num_shared_experts", int, 2):
        entries[_SHARED_COUNT] = shared
        entries[_SHARED_WIDTH] = shared * config.size("moe_intermediate_size", 1536)


ERNIE_MOE = Architecture(
    name="ernie4_5-moe",
    model_type="ernie4_5_moe",
    hf_class="Ernie4_5_MoeForCausalLM",
    block={
        **PRE_NORMS,
        **ATTENTION,
        **GATED_MLP,
        "ffn_gate_inp": "mlp.gate",
        "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
        "ffn_up_shexp": "mlp.shared_experts.up_proj",
        "ffn_down_shexp": "mlp.shared_experts.down_proj",
    },
    top=TOP,
    keys=(
        *_keys({**_DEFAULTS, "attention.head_count_kv": 4}),
        Key("expert_count", "moe_num_experts", in_config=64),
        Key("expert_used_count", "moe_k", in_config=6),
        Key("expert_feed_forward_length", "moe_intermediate_size", in_config=1536),
    ),
    rope_theta=5e5,
    implied={"use_bias": False},
    accepted={**SILU, "num_nextn_predict_layers": ()},
    neutral={NORMED: True},
    reads=_read_moe,
    writes=_write_moe,
    gguf=_INTERLEAVED,
    hf=_INTERLEAVED,
    experts=EXPERTS,
    folder_experts=FOLDER_EXPERTS,
    single_rows=("mlp.moe_statics",),
    vectors={"exp_probs_b.bias": "mlp.moe_statics.e_score_correction_bias"},
    routers=("mlp.gate",),
)
