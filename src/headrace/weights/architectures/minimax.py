"""MiniMax-M2: experts by Mixtral's names in folders, norms over all heads of Q and of K.

llama.cpp scores by what the file says and always divides the weights of the chosen by their sum.

Source: llama.cpp models/minimax-m2.cpp, conversion/minimax.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.architectures.shared import (
    ATTENTION,
    GATING,
    HEAD_NORMS,
    LOCAL_EXPERT_COUNTS,
    NORMED,
    PRE_NORMS,
    SIGMOID,
    SILU,
    TOP,
    with_defaults,
)
from headrace.weights.config_reader import ConfigReader

# Of a dense MLP, which no layer has; the converter writes an expert's width here as well.
_WIDTH = "feed_forward_length"


def _read(keys: GGUFKeys, config: dict[str, Any]) -> None:
    width = keys.size(_WIDTH)
    if width not in (None, config["intermediate_size"]):
        raise keys.error(_WIDTH, width, "the width of an expert is required")


def _write(config: ConfigReader, entries: dict[str, Any]) -> None:
    entries[_WIDTH] = config.size("intermediate_size", 1536)
    entries[GATING] = SIGMOID


MINIMAX_M2 = Architecture(
    name="minimax-m2",
    model_type="minimax_m2",
    hf_class="MiniMaxM2ForCausalLM",
    block={**PRE_NORMS, **ATTENTION, **HEAD_NORMS, "ffn_gate_inp": "block_sparse_moe.gate"},
    top=TOP,
    keys=(
        Key("context_length", "max_position_embeddings", in_config=196608),
        Key("embedding_length", "hidden_size", in_config=3072),
        Key("block_count", "num_hidden_layers", in_config=62),
        Key("expert_feed_forward_length", "intermediate_size", in_config=1536),
        Key("attention.head_count", "num_attention_heads", in_config=48),
        Key("attention.head_count_kv", "num_key_value_heads", in_config=8),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-6),
        *with_defaults(LOCAL_EXPERT_COUNTS, 256, 8),
    ),
    rope_theta=5e6,
    partial=1.0,
    rotary_dim_key=True,
    accepted={
        **SILU,
        "attn_type_list": (1,),
        "mtp_transformer_layers": (),
        "num_mtp_modules": (),
        "qk_norm_type": ("per_layer",),
        "router_jitter_noise": (),
        "scoring_func": ("sigmoid",),
        "shared_intermediate_size": (0,),
        "use_mtp": (),
        "use_qk_norm": (True,),
        "use_routing_bias": (True,),
    },
    neutral={NORMED: True, GATING: SIGMOID},
    reads=_read,
    writes=_write,
    experts={
        "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
        "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
    },
    folder_experts={
        "mlp.experts.gate_up_proj": (
            "block_sparse_moe.experts.{}.w1.weight",
            "block_sparse_moe.experts.{}.w3.weight",
        ),
        "mlp.experts.down_proj": ("block_sparse_moe.experts.{}.w2.weight",),
    },
    vectors={"exp_probs_b.bias": "block_sparse_moe.e_score_correction_bias"},
    routers=("block_sparse_moe.gate",),
)
