"""StarCoder2. A window is written and read, though llama.cpp knows none in this architecture.

Source: llama.cpp models/starcoder2.cpp, conversion/base.py.
"""

from __future__ import annotations

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.shared import (
    ATTENTION,
    ATTENTION_BIAS,
    GELU_TANH,
    PRE_NORMS,
    TOP,
    WINDOW,
)

_MLP = {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}

STARCODER2 = Architecture(
    name="starcoder2",
    model_type="starcoder2",
    hf_class="Starcoder2ForCausalLM",
    block={**PRE_NORMS, **ATTENTION, **_MLP},
    top=TOP,
    keys=(
        Key("context_length", "max_position_embeddings", in_config=4096),
        Key("embedding_length", "hidden_size"),
        Key("block_count", "num_hidden_layers"),
        Key("feed_forward_length", "intermediate_size"),
        Key("attention.head_count", "num_attention_heads"),
        Key("attention.head_count_kv", "num_key_value_heads", in_config=2),
        Key("attention.layer_norm_epsilon", "norm_epsilon", "positive", in_config=1e-5),
        WINDOW,
    ),
    accepted={
        "hidden_act": GELU_TANH,
        "activation_function": (),
        "layer_norm_epsilon": (),
        "mlp_type": ("default",),
        "norm_type": ("layer_norm",),
        "scale_attn_weights": (True,),
    },
    bias_keys={"use_bias": (*ATTENTION_BIAS, *_MLP.values())},
)
