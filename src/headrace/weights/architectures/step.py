"""Step-3.5 and Step-3.7: heads of Q by the kind of layer, limits of gates, half a head rotated.

Folders hold the experts of a layer as one tensor of each matrix. llama.cpp takes it that layers
which see everything rotate half of a head and the others all of it, and has no key for either. It
counts layers that predict further tokens among the others, in lists by layer too.

Source: llama.cpp models/step35.cpp, conversion/step3.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gemma4 import by_layer, of_kind
from headrace.weights.architectures.gguf_keys import GGUFKeys, shortest
from headrace.weights.architectures.glm import DENSE_LAYERS, DRAFT, DRAFT_LAYERS, read_count
from headrace.weights.architectures.shared import (
    ATTENTION,
    GATED_MLP,
    GATING,
    HEAD_NORMS,
    NORMED,
    PRE_NORMS,
    SIGMOID,
    SILU,
    TOP,
)
from headrace.weights.architectures.windows import PATTERN
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import FULL, WINDOWED
from headrace.weights.model_config.step_config import THETA, StepConfig, read_ropes

_HEADS, _KV_HEADS = "attention.head_count", "attention.head_count_kv"
_WINDOW = "attention.sliding_window"
_LIMITS = {"swiglu_clamp_exp": "swiglu_limits", "swiglu_clamp_shexp": "swiglu_limits_shared"}


def _read(keys: GGUFKeys, config: dict[str, Any]) -> None:
    drafts = read_count(keys, DRAFT_LAYERS, config["num_hidden_layers"])
    config["num_nextn_predict_layers"] = drafts
    config["num_hidden_layers"] -= drafts
    layers = config["num_hidden_layers"]
    flags = keys.flags(PATTERN, layers + drafts)
    if flags is None:
        raise keys.error(PATTERN, None, f"{layers + drafts} booleans are required")
    kinds = config["layer_types"] = [WINDOWED if flag else FULL for flag in flags]
    kinds = kinds[:layers]
    heads, kv_heads = by_layer(keys, _HEADS, layers), by_layer(keys, _KV_HEADS, layers)
    config["num_attention_heads"] = of_kind(keys, heads, kinds, FULL)
    config["num_sliding_attention_heads"] = of_kind(keys, heads, kinds, WINDOWED)
    if len(set(kv_heads)) > 1:
        raise keys.error(_KV_HEADS, kv_heads, "one number for all layers is required")
    config["num_key_value_heads"] = kv_heads[0]
    config["sliding_window"] = keys.required_size(_WINDOW)
    dense = read_count(keys, DENSE_LAYERS, layers + 1)
    config["mlp_layer_types"] = ["dense"] * dense + ["sparse"] * (layers - dense)
    for key, name in _LIMITS.items():
        if key in keys:
            config[name] = _limits(keys, key, layers + drafts)
    if (normed := keys.take(NORMED)) is not True:
        raise keys.error(NORMED, normed, "true is required")


def _limits(keys: GGUFKeys, key: str, layers: int) -> list[float]:
    value = keys.take(key)
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or len(value) < layers:
        raise keys.error(key, value, f"{layers} numbers are required")
    return [shortest(float(limit)) for limit in value[:layers]]


def _write(config: ConfigReader, entries: dict[str, Any]) -> None:
    step = StepConfig.read(config)
    head_dim = config.size("head_dim", 128)
    config.expect("query_pre_attn_scalar", float, (float(head_dim),), float(head_dim))
    dense = (*step.sparse, True).index(True)
    if not all(step.sparse[dense:]):
        config.refuse("mlp_layer_types", list(step.sparse), "dense layers first")
    entries[DENSE_LAYERS] = dense
    entries["block_count"] = step.layers + step.drafts
    if step.drafts:
        entries[DRAFT_LAYERS] = step.drafts
    entries[PATTERN] = list(step.windowed)
    entries[_HEADS] = [step.local_heads if windowed else step.heads for windowed in step.windowed]
    entries[_KV_HEADS] = [step.kv_heads] * len(step.windowed)
    # Where no layer has one, a number that has to be there.
    entries[_WINDOW] = step.window or entries["context_length"]
    entries["expert_count"], entries["expert_used_count"] = step.experts, step.chosen
    entries["expert_shared_feed_forward_length"] = step.shared_width
    shared_limits = (*step.shared_limits, *step.draft_limits)
    of_experts = (*step.limits, *[0.0] * step.drafts)
    for key, limits in zip(_LIMITS, (of_experts, shared_limits), strict=True):
        if any(limits):
            entries[key] = list(limits)
    entries[GATING], entries[NORMED] = SIGMOID, True


STEP = Architecture(
    name="step35",
    model_type="step3p7",
    hf_class="Step3p5ForCausalLM",
    block={
        **PRE_NORMS,
        **ATTENTION,
        **HEAD_NORMS,
        **GATED_MLP,
        "attn_gate": "self_attn.g_proj",
        "ffn_gate_inp": "moe.gate",
        "ffn_gate_shexp": "share_expert.gate_proj",
        "ffn_up_shexp": "share_expert.up_proj",
        "ffn_down_shexp": "share_expert.down_proj",
        **DRAFT,
        "nextn.shared_head_head": "transformer.shared_head.output",
        "nextn.shared_head_norm": "transformer.shared_head.norm",
    },
    top=TOP,
    keys=(
        Key("context_length", "max_position_embeddings", in_config=128000),
        Key("embedding_length", "hidden_size", in_config=4096),
        Key("block_count", "num_hidden_layers", in_config=45),
        Key("feed_forward_length", "intermediate_size", in_config=11264),
        Key(_HEADS, "num_attention_heads", "largest", in_config=64),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5),
        Key("expert_count", "n_routed_experts", in_config=288),
        Key("expert_used_count", "num_experts_per_tok", in_config=8),
        Key("expert_feed_forward_length", "moe_intermediate_size", in_config=1280),
        Key("expert_shared_feed_forward_length", "share_expert_dim", in_config=1280),
        Key("expert_weights_scale", "moe_router_scaling_factor", "positive", 1.0, 1.0),
    ),
    silent_head_dim=128,
    rope_theta=THETA,
    local_theta=THETA,
    partial=1.0,
    halved_rope=True,
    ropes=read_ropes,
    accepted={
        **SILU,
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "moe_router_activation": ("sigmoid",),
        "n_shared_experts": (1,),
        "norm_expert_weight": (True,),
        "scoring_func": ("sigmoid",),
        "use_bidirectional_attention": (False,),
        "use_moe_router_bias": (True,),
    },
    neutral={GATING: SIGMOID, "moe_every_n_layers": 1},
    reads=_read,
    writes=_write,
    hf=Conventions(norm_offset=1.0),
    experts={
        "ffn_gate_exps": "moe.experts.{}.gate_proj",
        "ffn_up_exps": "moe.experts.{}.up_proj",
        "ffn_down_exps": "moe.experts.{}.down_proj",
    },
    folder_experts={
        f"moe.{name}_proj.weight": (f"moe.experts.{{}}.{name}_proj.weight",)
        for name in ("gate", "up", "down")
    },
    stacked_in_folders=True,
    vectors={"exp_probs_b.bias": "moe.router_bias"},
    routers=("moe.gate",),
)
