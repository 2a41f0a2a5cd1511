"""MiMo-V2-Flash: heads of K and V by the kind of layer, values narrower than keys, sinks.

llama.cpp scores experts by a sigmoid, divides the weights of the chosen by their sum and knows
neither groups nor a further factor. Its converter counts layers that predict further tokens among
the others and gives the window as the folder does, which is one position less than the folder's
own code sees; our writer states what is seen.

Source: llama.cpp models/mimo2.cpp, conversion/mimo.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gemma4 import by_layer, of_kind
from headrace.weights.architectures.gguf_keys import GGUFKeys, is_whole
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    EXPERTS,
    FOLDER_EXPERTS,
    GATED_MLP,
    GATING,
    NORMED,
    PRE_NORMS,
    SIGMOID,
    SILU,
    TOP,
)
from headrace.weights.architectures.windows import PATTERN
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.layer_kinds import read_sparse_mlps, read_window_kinds
from headrace.weights.model_config.rope_config import FULL, WINDOWED

_KV_HEADS = "attention.head_count_kv"
_WINDOW = "attention.sliding_window"
_VALUE_SCALE = "attention.value_scale"
_DRAFTS = "nextn_predict_layers"


def _read(keys: GGUFKeys, config: dict[str, Any]) -> None:
    drafts = keys.take(_DRAFTS) or 0
    if not is_whole(drafts) or not 0 <= drafts < config["num_hidden_layers"]:
        raise keys.error(_DRAFTS, drafts, "a whole number below block_count is required")
    config["num_hidden_layers"] -= drafts
    layers = config["num_hidden_layers"]
    flags = keys.flags(PATTERN, layers)
    if flags is None:
        raise keys.error(PATTERN, None, f"{layers} booleans are required")
    kinds = config["layer_types"] = [WINDOWED if flag else FULL for flag in flags]
    kv_heads = by_layer(keys, _KV_HEADS, layers)
    config["num_key_value_heads"] = of_kind(keys, kv_heads, kinds, FULL)
    config["swa_num_key_value_heads"] = of_kind(keys, kv_heads, kinds, WINDOWED)
    config["sliding_window"] = keys.required_size(_WINDOW)
    config["attention_value_scale"] = keys.positive(_VALUE_SCALE) or 1.0
    share = config.pop("partial_rotary_factor", 1.0)
    thetas = {FULL: config.pop("rope_theta"), WINDOWED: config.pop("rope_local_base_freq")}
    config["rope_parameters"] = {
        kind: {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": share}
        for kind, theta in thetas.items()
    }


def _write(config: ConfigReader, entries: dict[str, Any]) -> None:
    layers = entries["block_count"]
    entries["attention.value_length"] = config.size("v_head_dim", 128)
    if config.optional("layernorm_epsilon", float) is not None:
        entries["attention.layer_norm_rms_epsilon"] = config.positive("layernorm_epsilon")
    usual = (FULL if index % 6 == 5 or index == 0 else WINDOWED for index in range(layers))
    kinds = read_window_kinds(config, layers, tuple(usual))
    flags = entries[PATTERN] = [kind == WINDOWED for kind in kinds]
    full = config.size("num_key_value_heads", 4)
    local = config.size("swa_num_key_value_heads", 2 * full)
    entries[_KV_HEADS] = [local if flag else full for flag in flags]
    window = config.size("sliding_window", 129)
    if config.optional("sliding_window_size", int) is not None:
        window = config.size("sliding_window_size") + 1
    entries[_WINDOW] = window
    scale = config.get("attention_value_scale", float, 0.707)
    if config.states("attention_value_scale") and config.raw("attention_value_scale") is None:
        scale = 1.0
    entries[_VALUE_SCALE] = scale
    entries[GATING] = SIGMOID
    leading = tuple(index > 0 for index in range(layers))
    if read_sparse_mlps(config, layers, leading) != leading:
        key = "moe_layer_freq" if config.raw("mlp_layer_types") is None else "mlp_layer_types"
        config.refuse(key, config.raw(key), "a dense layer at the beginning and no other")


MIMO_V2_FLASH = Architecture(
    name="mimo2",
    model_type="mimo_v2_flash",
    hf_class="MiMoV2FlashForCausalLM",
    silent_head_dim=192,
    block={
        **PRE_NORMS,
        **ATTENTION,
        **GATED_MLP,
        "ffn_gate_inp": "mlp.gate",
        "nextn.eh_proj": "eh_proj",
        "nextn.enorm": "enorm",
        "nextn.hnorm": "hnorm",
        "layer_output_norm": "final_layernorm",
    },
    top=TOP,
    keys=(
        Key("context_length", "max_position_embeddings", in_config=131072),
        Key("embedding_length", "hidden_size", in_config=4096),
        Key("block_count", "num_hidden_layers", in_config=48),
        Key("feed_forward_length", "intermediate_size", in_config=16384),
        Key("attention.head_count", "num_attention_heads", in_config=64),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5),
        Key("expert_count", "n_routed_experts", in_config=256),
        Key("expert_used_count", "num_experts_per_tok", in_config=8),
        Key("expert_feed_forward_length", "moe_intermediate_size", in_config=2048),
    ),
    rope_theta=5e6,
    local_theta=1e4,
    local_theta_key="swa_rope_theta",
    partial=0.334,
    value_dim_key="v_head_dim",
    implied={"norm_topk_prob": True, "n_group": 1, "topk_group": 1},
    accepted={
        **SILU,
        "add_full_attention_sink_bias": (False,),
        "add_swa_attention_sink_bias": (True,),
        "attention_chunk_size": (),
        "n_shared_experts": (0,),
        "routed_scaling_factor": (1.0,),
        "scoring_func": ("sigmoid",),
        "swa_head_dim": (),
        "swa_num_attention_heads": (),
        "swa_v_head_dim": (),
        "topk_method": ("noaux_tc",),
    },
    neutral={NORMED: True, GATING: SIGMOID, "expert_weights_scale": 1.0},
    reads=_read,
    writes=_write,
    bias_keys={"attention_bias": ATTENTION_BIAS[:3]},
    experts=EXPERTS,
    folder_experts=FOLDER_EXPERTS,
    vectors={
        "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
        "attn_sinks.weight": "self_attn.attention_sink_bias",
    },
    routers=("mlp.gate",),
)
