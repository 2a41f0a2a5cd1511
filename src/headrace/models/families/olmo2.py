"""OLMo 2: norms after attention and MLP and none before, and norms of Q and K as wide as they are.

    q, k, v = q_norm(q_proj(x)), k_norm(k_proj(x)), v_proj(x)
    h = x + norm(o_proj(attention(rope(q), rope(k), v)))
    y = h + norm(mlp(h))                      mlp: down(silu(gate) * up)

Sources: arXiv 2501.00656; transformers modeling_olmo2.py for the keys.
"""

from __future__ import annotations

from headrace.models.blocks import ColumnNormAttention
from headrace.models.config import DecoderConfig, read_attention
from headrace.models.decoder import NormNames, PostNormLayer
from headrace.models.model import Model
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader


class Olmo2Layer(PostNormLayer):
    """A layer whose norms are on what attention and MLP add, not on what they are given."""

    attention_type = ColumnNormAttention
    head_norms = True
    norm_names = NormNames(None, "post_attention_layernorm", None, "post_feedforward_layernorm")


class Olmo2(Model):
    """Olmo2ForCausalLM."""

    layer_type = Olmo2Layer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        return read_olmo2(reader, "olmo2", RopeConfig.read(reader))


def read_olmo2(reader: ConfigReader, model_type: str, rope: RopeConfig) -> DecoderConfig:
    """Keys that OLMo 2 and 3 share."""
    heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
    head_dim = reader.get("head_dim", int, hidden // heads)
    if head_dim * heads != hidden:
        reader.refuse("hidden_size", hidden, f"num_attention_heads {heads} times head_dim")
    reader.expect("hidden_act", str, ("silu", "swish"), "silu")
    return DecoderConfig(
        model_type=model_type,
        vocab_size=reader.optional("vocab_size", int),
        hidden_size=hidden,
        intermediate_size=reader.size("intermediate_size"),
        num_layers=reader.size("num_hidden_layers"),
        attention=read_attention(reader, heads, head_dim),
        rope=rope,
        max_positions=reader.size("max_position_embeddings", 2048),
        norm_eps=reader.positive("rms_norm_eps", 1e-5),
        attention_bias=reader.optional("attention_bias", bool),
        mlp_bias=False,
        tied=reader.optional("tie_word_embeddings", bool),
    )
