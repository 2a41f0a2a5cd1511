"""Falcon: its old and new form, which GGUF tells apart by a second norm and the heads of K and V.

llama.cpp approximates GELU by tanh in all files; config.json of every Falcon says the exact
function, which is what its GGUF files stand for here, so that both kinds of file are one model.

Source: llama.cpp models/falcon.cpp, conversion/falcon.py; transformers modeling_falcon.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace.weights.architectures.architecture import LEFT_OUT, Architecture, Key, Variant
from headrace.weights.architectures.gguf_keys import GGUFKeys
from headrace.weights.checkpoint import Conventions
from headrace.weights.model_config.config_reader import ConfigReader


class FalconParts(NamedTuple):
    """Heads of Q, and of K and V; whether attention and MLP have a norm each."""

    num_heads: int
    num_kv_heads: int
    two_norms: bool

    @classmethod
    def read(cls, config: ConfigReader) -> FalconParts:
        """From the switches of either form, of which each ignores some of the other's."""
        heads = config.size("num_attention_heads")
        kv_heads = config.size("num_kv_heads", heads)
        multi_query = config.get("multi_query", bool, True)
        if not config.get("new_decoder_architecture", bool, False):
            config.expect("parallel_attn", bool, (True,), True)
            config.expect("num_ln_in_parallel_attn", int, (1,), 1)
            return cls(heads, 1 if multi_query else heads, False)
        if heads % kv_heads:
            config.refuse("num_kv_heads", kv_heads, f"divisors of num_attention_heads {heads}")
        config.unused("parallel_attn")
        norms = config.expect("num_ln_in_parallel_attn", int, (1, 2), 2)
        return cls(heads, kv_heads, norms == 2)


def _read(keys: GGUFKeys, config: dict[str, Any]) -> None:
    del keys
    if config["num_kv_heads"] > 1 and "num_ln_in_parallel_attn" not in config:
        config["new_decoder_architecture"] = True
        config["num_ln_in_parallel_attn"] = 1


def _write(config: ConfigReader, entries: dict[str, Any]) -> None:
    entries["attention.head_count_kv"] = FalconParts.read(config).num_kv_heads
    entries.setdefault("feed_forward_length", 4 * config.size("hidden_size"))


FALCON = Architecture(
    name="falcon",
    model_type="falcon",
    hf_class="FalconForCausalLM",
    block={
        "attn_norm": "input_layernorm",
        "attn_norm_2": "ln_attn",
        "attn_qkv": "self_attention.query_key_value",
        "attn_output": "self_attention.dense",
        "ffn_up": "mlp.dense_h_to_4h",
        "ffn_down": "mlp.dense_4h_to_h",
    },
    top={
        "token_embd": "transformer.word_embeddings",
        "output_norm": "transformer.ln_f",
        "output": "lm_head",
    },
    keys=(
        Key("context_length", "max_position_embeddings", in_config=2048),
        Key("embedding_length", "hidden_size"),
        Key("block_count", "num_hidden_layers"),
        Key("feed_forward_length", "ffn_hidden_size", in_config=LEFT_OUT),
        Key("attention.head_count", "num_attention_heads"),
        Key("attention.head_count_kv", "num_kv_heads", same_as="num_attention_heads"),
        Key("attention.layer_norm_epsilon", "layer_norm_epsilon", "positive", in_config=1e-5),
    ),
    layers="transformer.h",
    head_dim=False,
    implied={"activation": "gelu", "alibi": False, "bias": False},
    accepted={
        "apply_residual_connection_post_layernorm": (False,),
        "ff_factor": (),
    },
    variants={
        "attn_norm_2": Variant(
            block={"attn_norm": "ln_mlp"},
            implied={"new_decoder_architecture": True, "num_ln_in_parallel_attn": 2},
        )
    },
    fused_heads=lambda config: FalconParts.read(config)[:2],
    reads=_read,
    writes=_write,
    hf=Conventions(qkv_layout="grouped"),
    hf_prefix="transformer.",
)
