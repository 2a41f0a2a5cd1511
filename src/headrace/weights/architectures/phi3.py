"""Phi-3 and Phi-4: Q, K and V as one matrix, gate and up as one, in both containers.

A window is read as config.json has it: llama.cpp states it, and has not used it since it found that
files gave it in different ways; a prompt shorter than it gives the same either way.

Source: llama.cpp models/phi3.cpp, conversion/phi.py.
"""

from __future__ import annotations

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.shared import ATTENTION, PRE_NORMS, SILU, TOP, WINDOW

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
