"""Phi-3 and Phi-4: Q, K and V as one matrix, gate and up as one, in both containers; Phi-3.5-MoE.

A window is read as config.json has it: llama.cpp states it, and has not used it since it found that
files gave it in different ways; a prompt shorter than it gives the same either way.

Source: llama.cpp models/phi3.cpp, conversion/phi.py.
"""

from __future__ import annotations

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    LOCAL_EXPERT_COUNTS,
    PRE_NORMS,
    SILU,
    SIZES,
    TOP,
    WINDOW,
    with_defaults,
)

PHI3 = Architecture(
    name="phi3",
    model_type="phi3",
    hf_class="Phi3ForCausalLM",
    block={
        **PRE_NORMS,
        **ATTENTION,
        "attn_qkv": "self_attn.qkv_proj",
        "ffn_up": "mlp.gate_up_proj",
        "ffn_down": "mlp.down_proj",
    },
    top=TOP,
    keys=(
        Key("context_length", "max_position_embeddings", in_config=4096),
        Key("embedding_length", "hidden_size"),
        Key("block_count", "num_hidden_layers"),
        Key("feed_forward_length", "intermediate_size"),
        Key("attention.head_count", "num_attention_heads"),
        Key("attention.head_count_kv", "num_key_value_heads", same_as="num_attention_heads"),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5),
        WINDOW,
    ),
    partial=1.0,
    accepted={
        **SILU,
        "attention_bias": (False,),
        "full_attn_mod": (1,),
        "interpolate_factor": (1,),
        "lm_head_bias": (False,),
        "mlp_bias": (False,),
    },
)


PHIMOE = Architecture(
    name="phimoe",
    model_type="phimoe",
    hf_class="PhimoeForCausalLM",
    block={**PRE_NORMS, **ATTENTION, "ffn_gate_inp": "block_sparse_moe.gate"},
    top=TOP,
    keys=(
        *SIZES[:-1],
        Key("attention.head_count_kv", "num_key_value_heads", in_config=8),
        Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive", in_config=1e-5),
        *with_defaults(LOCAL_EXPERT_COUNTS, 16, 2),
        WINDOW,
    ),
    rope_theta=1e6,
    head_dim=False,
    accepted={**SILU, "router_jitter_noise": (0.01,), "input_jitter_noise": ()},
    bias_keys={"attention_bias": ATTENTION_BIAS},
    head_bias_key="lm_head_bias",
    experts={
        "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
        "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
        "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
    },
    routers=("block_sparse_moe.gate",),
)
