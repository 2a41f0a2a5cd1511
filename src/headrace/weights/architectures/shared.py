"""Names and keys that most architectures share: Llama's, which the others were modelled on.

Source: gguf-py tensor_mapping.py and constants.py, convert_hf_to_gguf.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.weights.architectures.architecture import LEFT_OUT, Key

TOP: Mapping[str, str] = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
ATTENTION: Mapping[str, str] = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}
GATED_MLP: Mapping[str, str] = {
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
PRE_NORMS: Mapping[str, str] = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
HEAD_NORMS: Mapping[str, str] = {
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
EXPERTS: Mapping[str, str] = {
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
}
"""Experts of families whose folders hold each of them apart, and in GGUF."""
FOLDER_EXPERTS: Mapping[str, tuple[str, ...]] = {
    "mlp.experts.gate_up_proj": (
        "mlp.experts.{}.gate_proj.weight",
        "mlp.experts.{}.up_proj.weight",
    ),
    "mlp.experts.down_proj": ("mlp.experts.{}.down_proj.weight",),
}
"""The same in folders that hold all experts of a layer as one tensor, as transformers computes."""
BLOCK: Mapping[str, str] = {**PRE_NORMS, **ATTENTION, **GATED_MLP}
"""Modules of a Llama layer."""

KV_HEADS = Key("attention.head_count_kv", "num_key_value_heads", same_as="num_attention_heads")
SIZES: tuple[Key, ...] = (
    Key("context_length", "max_position_embeddings"),
    Key("embedding_length", "hidden_size"),
    Key("block_count", "num_hidden_layers"),
    Key("feed_forward_length", "intermediate_size"),
    Key("attention.head_count", "num_attention_heads"),
    KV_HEADS,
)
RMS_EPS = Key("attention.layer_norm_rms_epsilon", "rms_norm_eps", "positive")
KEYS: tuple[Key, ...] = (*SIZES, RMS_EPS)
"""Keys of a Llama config; widths of heads, rope and the vocabulary are read and written apart."""


def keys_with_kv_heads(default: int) -> tuple[Key, ...]:
    """KEYS of a family whose config.json, where silent, means `default` heads of K and V."""
    return tuple(replace(key, in_config=default) if key is KV_HEADS else key for key in KEYS)


EXPERT_COUNTS: tuple[Key, ...] = (
    Key("expert_count", "num_experts"),
    Key("expert_used_count", "num_experts_per_tok"),
)
LOCAL_EXPERT_COUNTS: tuple[Key, ...] = (
    Key("expert_count", "num_local_experts"),
    Key("expert_used_count", "num_experts_per_tok"),
)
"""The same in families that name them after Mixtral's config."""
NORMED = "expert_weights_norm"
"""Key of GGUF: whether the weights of the chosen experts are divided by their sum."""
GATING, SIGMOID = "expert_gating_func", 2
"""Key of GGUF: how experts are scored, and llama.cpp's number for a sigmoid."""


def with_defaults(keys: tuple[Key, ...], *defaults: int) -> tuple[Key, ...]:
    """Keys with what a silent config.json means, one for each."""
    pairs = zip(keys, defaults, strict=True)
    return tuple(replace(key, in_config=default) for key, default in pairs)


WINDOW = Key(
    "attention.sliding_window", "sliding_window", in_gguf=LEFT_OUT, in_config=LEFT_OUT, off=0
)
"""Positions each layer with a window sees; which layers those are is the architecture's to say."""

SILU: Mapping[str, tuple[object, ...]] = {"hidden_act": ("silu", "swish")}
GELU_TANH = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")
"""Names under which configs have the approximation by tanh, which llama.cpp always computes."""

NO_WINDOW: Mapping[str, tuple[object, ...]] = {
    "use_sliding_window": (False,),
    "layer_types": ("full_attention",),
}
"""What configs without windows still say of them."""

ATTENTION_BIAS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
MLP_BIAS = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
BIAS_KEYS: Mapping[str, tuple[str, ...]] = {"attention_bias": ATTENTION_BIAS, "mlp_bias": MLP_BIAS}
