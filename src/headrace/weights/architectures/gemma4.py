"""Gemma 4: two widths of heads, K and V that layers share, inputs of each layer, experts.

GGUF files state the wider heads under the usual key and those of layers with a window under one of
their own, heads of K and V and widths of the MLP layer by layer, and the share of pairs that is
rotated as a tensor of divisors. That V is K they say by leaving out V.

Source: llama.cpp models/gemma4.cpp, conversion/gemma.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.weights.architectures.architecture import LEFT_OUT, Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys, is_whole
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    GATED_MLP,
    HEAD_NORMS,
    TOP,
)
from headrace.weights.architectures.windows import PATTERN, read_layer_types, write_layer_types
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import FULL, WINDOWED

_KV_HEADS = "attention.head_count_kv"
_WIDTH = "feed_forward_length"
_SHARED = "attention.shared_kv_layers"
_INPUTS = "embedding_length_per_layer_input"
_EXPERTS, _CHOSEN, _EXPERT_WIDTH = "expert_count", "expert_used_count", "expert_feed_forward_length"


def _read(keys: GGUFKeys, config: dict[str, Any]) -> None:
    layers = config["num_hidden_layers"]
    if PATTERN not in keys:
        raise keys.error(PATTERN, None, f"{layers} booleans are required")
    read_layer_types(keys, config)
    kinds = config["layer_types"]
    kv_heads = by_layer(keys, _KV_HEADS, layers)
    config["num_key_value_heads"] = of_kind(keys, kv_heads, kinds, WINDOWED)
    config["num_global_key_value_heads"] = of_kind(keys, kv_heads, kinds, FULL)
    shared = keys.take(_SHARED) or 0
    if not is_whole(shared) or not 0 <= shared < layers:
        raise keys.error(_SHARED, shared, f"a whole number from 0 to {layers - 1} is required")
    config["num_kv_shared_layers"] = shared
    widths = by_layer(keys, _WIDTH, layers)
    config["intermediate_size"] = widths[0]
    wide = [widths[0]] * (layers - shared) + [2 * widths[0]] * shared
    config["use_double_wide_mlp"] = widths == wide and shared > 0
    if widths not in (wide, [widths[0]] * layers):
        raise keys.error(_WIDTH, widths, "one width, and twice that in layers that share K and V")
    inputs = keys.take(_INPUTS) or 0
    if not is_whole(inputs) or not 0 <= inputs < 1 << 31:
        raise keys.error(_INPUTS, inputs, "a whole number below 2**31 is required")
    config["hidden_size_per_layer_input"] = inputs
    config["vocab_size_per_layer_input"] = config["vocab_size"]
    count = None if keys.says(_EXPERTS, 0) else keys.size(_EXPERTS)
    config["enable_moe_block"] = count is not None
    if count is not None:
        config["num_experts"] = count
        config["top_k_experts"] = keys.required_size(_CHOSEN)
        config["moe_intermediate_size"] = keys.required_size(_EXPERT_WIDTH)


def by_layer(keys: GGUFKeys, key: str, layers: int) -> list[int]:
    """A size of each layer, stated for all or one by one."""
    value = keys.peek(key)
    if not isinstance(value, np.ndarray):
        return [keys.required_size(key)] * layers
    keys.take(key)
    whole = value.dtype.kind in "iu" and len(value) >= layers
    if not whole or not all(0 < int(size) < 1 << 31 for size in value[:layers]):
        raise keys.error(key, value.tolist(), f"{layers} sizes are required")
    return [int(size) for size in value[:layers]]


def of_kind(keys: GGUFKeys, sizes: list[int], kinds: list[str], kind: str) -> int:
    """The size in layers of one kind, or the first one where there is none of it."""
    found = {size for size, other in zip(sizes, kinds, strict=True) if other == kind}
    if len(found) > 1:
        raise keys.error(_KV_HEADS, sizes, f"one number in layers of kind {kind} is required")
    return found.pop() if found else sizes[0]


def _write(config: ConfigReader, entries: dict[str, Any]) -> None:
    layers = entries["block_count"]
    if config.raw("rope_parameters") is None:
        config.refuse("rope_parameters", None, "objects, as the published configs have one")
    write_layer_types(config, entries, 6)
    entries.setdefault(PATTERN, [index % 6 != 0 for index in range(1, layers + 1)])
    flags = entries[PATTERN]
    local = config.size("num_key_value_heads", 4)
    full = config.size("num_global_key_value_heads", local)
    if config.raw("attention_k_eq_v") is False:
        full = local
    entries[_KV_HEADS] = local if full == local else [local if flag else full for flag in flags]
    shared = config.get("num_kv_shared_layers", int, 0)
    entries[_SHARED] = shared
    width = config.size("intermediate_size", 9216)
    entries[_WIDTH] = width
    if config.get("use_double_wide_mlp", bool, False) and shared:
        entries[_WIDTH] = [width] * (layers - shared) + [2 * width] * shared
    entries[_INPUTS] = config.get("hidden_size_per_layer_input", int, 256)
    rows = config.size("vocab_size")
    if entries[_INPUTS]:
        config.expect("vocab_size_per_layer_input", int, (rows,), 262144)
    config.unused("vocab_size_per_layer_input")
    if config.get("enable_moe_block", bool, False):
        entries[_EXPERTS] = config.size("num_experts")
        entries[_CHOSEN] = config.size("top_k_experts")
        entries[_EXPERT_WIDTH] = config.size("moe_intermediate_size")
    config.unused("num_experts", "top_k_experts", "moe_intermediate_size")


GEMMA4 = Architecture(
    name="gemma4",
    model_type="gemma4_text",
    hf_class="Gemma4ForCausalLM",
    silent_head_dim=256,
    block={
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
        "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
        "post_ffw_norm_1": "post_feedforward_layernorm_1",
        "post_ffw_norm_2": "post_feedforward_layernorm_2",
        **ATTENTION,
        **HEAD_NORMS,
        **GATED_MLP,
        "ffn_gate_inp": "router.proj",
        "inp_gate": "per_layer_input_gate",
        "proj": "per_layer_projection",
        "post_norm": "post_per_layer_input_norm",
    },
    top={
        **TOP,
        "per_layer_token_embd": "model.embed_tokens_per_layer",
        "per_layer_model_proj": "model.per_layer_model_projection",
        "per_layer_proj_norm": "model.per_layer_projection_norm",
    },
    keys=(
        Key("context_length", "max_position_embeddings", in_config=131072),
        Key("embedding_length", "hidden_size", in_config=2304),
        Key("block_count", "num_hidden_layers", in_config=30),
        Key("attention.head_count", "num_attention_heads", in_config=8),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-6),
        Key("attention.sliding_window", "sliding_window", in_config=512),
        Key(
            "final_logit_softcapping", "final_logit_softcapping", "positive",
            in_gguf=LEFT_OUT, in_config=LEFT_OUT, off=0.0,
        ),
    ),
    rope_theta=1e6,
    local_theta=1e4,
    partial=1.0,
    full_head_dim="global_head_dim",
    implied={"hidden_activation": "gelu_pytorch_tanh"},
    accepted={"use_bidirectional_attention": ("vision",), "attention_k_eq_v": ()},
    bias_keys={"attention_bias": ATTENTION_BIAS},
    reads=_read,
    writes=_write,
    absences={"attention_k_eq_v": ("self_attn.k_proj", "self_attn.v_proj")},
    experts={
        "ffn_gate_exps": "experts.{}.gate_proj",
        "ffn_up_exps": "experts.{}.up_proj",
        "ffn_down_exps": "experts.{}.down_proj",
    },
    fused_experts={"ffn_gate_up_exps": ("experts.{}.gate_proj", "experts.{}.up_proj")},
    folder_experts={
        "experts.gate_up_proj": (
            "experts.{}.gate_proj.weight",
            "experts.{}.up_proj.weight",
        ),
        "experts.down_proj": ("experts.{}.down_proj.weight",),
    },
    stacked_in_folders=True,
    vectors={
        "layer_output_scale.weight": "layer_scalar",
        "ffn_gate_inp.scale": "router.scale",
        "ffn_down_exps.scale": "router.per_expert_scale",
    },
    routers=("router.proj",),
)  # fmt: skip
