"""Llama 1 to 3: pre-norm decoder with rotary attention in groups and a SiLU-gated MLP.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(rope(q), rope(k), v))
    gate, up = gate_up_proj(norm(h))
    y = h + down_proj(silu(gate) * up)

Sources: arXiv 2302.13971, 2307.09288, 2407.21783; transformers modeling_llama.py for the keys.
"""

from __future__ import annotations

from typing import Any

from headrace.models.config import DecoderConfig, read_attention
from headrace.models.decoder import PreNormLayer
from headrace.models.model import Model
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader


class Llama(Model):
    """LlamaForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        window = reader.optional("sliding_window", int)
        if window is not None and reader.get("use_sliding_window", bool, True):
            reader.refuse("sliding_window", window, "null")
        reader.unused("use_sliding_window")
        # Falcon 3's name for what hidden_act says.
        reader.expect("activation", str, ("swiglu",), "swiglu")
        return read_llama(
            reader,
            "llama",
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=reader.optional("mlp_bias", bool),
        )


def read_llama(
    reader: ConfigReader,
    model_type: str,
    *,
    default_positions: int = 2048,
    default_kv_heads: int | None = None,
    default_head_dim: int | None = None,
    default_theta: float = 10000.0,
    default_eps: float = 1e-6,
    scale: float | None = None,
    activations: tuple[str, ...] = ("silu", "swish"),
    **fields: Any,
) -> DecoderConfig:
    """Keys that Llama and the families modelled on it share; `fields` of the config win.

    default_kv_heads: where the config does not state them at all; None and null mean one for each
    head. default_head_dim: the same for the width of a head; None and null mean hidden / heads.
    scale: of the scores; None means head_dim^-1/2. activations: names that `hidden_act` may have
    for what the family computes; the first is what silence means.
    """
    heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
    usual = None if reader.states("head_dim") else default_head_dim
    head_dim = reader.optional_size("head_dim") or usual or hidden // heads
    if head_dim * heads != hidden and reader.raw("head_dim") is None and usual is None:
        reader.refuse("hidden_size", hidden, f"multiples of num_attention_heads {heads}")
    reader.expect("hidden_act", str, activations, activations[0])
    return DecoderConfig(
        model_type=model_type,
        vocab_size=reader.optional("vocab_size", int),
        hidden_size=hidden,
        intermediate_size=reader.size("intermediate_size"),
        num_layers=reader.size("num_hidden_layers"),
        attention=read_attention(
            reader,
            heads,
            head_dim,
            scale=scale,
            default_kv_heads=None if reader.states("num_key_value_heads") else default_kv_heads,
        ),
        rope=RopeConfig.read(reader, default_theta=default_theta),
        max_positions=reader.size("max_position_embeddings", default_positions),
        norm_eps=reader.positive("rms_norm_eps", default_eps),
        tied=reader.optional("tie_word_embeddings", bool),
        **fields,
    )
