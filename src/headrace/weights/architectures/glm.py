"""GLM-4-9B and GLM-4-0414: rows of Q and K interleaved in both containers, gate and up as one.

Files of GLM-4-9B that were made of its first form (ChatGLM) have Q, K and V as one matrix too.

Source: llama.cpp models/glm4.cpp and chatglm.cpp, conversion/glm.py and chatglm.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture, Key
from headrace.weights.architectures.shared import ATTENTION, ATTENTION_BIAS, RMS_EPS, SILU, TOP
from headrace.weights.checkpoint import Conventions
from headrace.weights.config_reader import ConfigReader

_MLP = {"ffn_up": "mlp.gate_up_proj", "ffn_down": "mlp.down_proj"}
_KEYS = (
    Key("context_length", "max_position_embeddings"),
    Key("embedding_length", "hidden_size"),
    Key("block_count", "num_hidden_layers"),
    Key("feed_forward_length", "intermediate_size"),
    Key("attention.head_count", "num_attention_heads"),
    Key("attention.head_count_kv", "num_key_value_heads", in_config=2),
    RMS_EPS,
)
_INTERLEAVED = Conventions(rope_layout="interleaved")
_BIAS_KEYS = {"attention_bias": tuple(name for name in ATTENTION_BIAS if "o_proj" not in name)}


def _write_glm(config: ConfigReader, entries: dict[str, Any]) -> None:
    """llama.cpp takes heads of this architecture to be as wide as hidden / heads."""
    width = config.size("hidden_size") // config.size("num_attention_heads")
    config.expect("head_dim", int, (width,), 128)


GLM = Architecture(
    name="chatglm",
    model_type="glm",
    hf_class="GlmForCausalLM",
    block={
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_qkv": "self_attn.qkv_proj",
        **ATTENTION,
        **_MLP,
    },
    top=TOP,
    keys=_KEYS,
    partial=0.5,
    accepted=SILU,
    writes=_write_glm,
    gguf_only=("self_attn.qkv_proj",),
    gguf=_INTERLEAVED,
    hf=_INTERLEAVED,
    bias_keys=_BIAS_KEYS,
)

GLM4 = Architecture(
    name="glm4",
    model_type="glm4",
    hf_class="Glm4ForCausalLM",
    block={
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_self_attn_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
        **ATTENTION,
        **_MLP,
    },
    top=TOP,
    keys=_KEYS,
    partial=0.5,
    accepted=SILU,
    gguf=_INTERLEAVED,
    hf=_INTERLEAVED,
    bias_keys=_BIAS_KEYS,
)
