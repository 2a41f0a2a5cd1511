"""GLM-4-9B in Hugging Face's form: Llama's decoder with half of each head rotated.

    q, k, v = qkv_proj(norm(x))               with biases; o_proj has none
    h = x + o_proj(attention(rope(q), rope(k), v))
    gate, up = gate_up_proj(norm(h))          stored as one matrix
    y = h + down_proj(silu(gate) * up)

Neighbouring dimensions are rotated together, in either kind of file, which the checkpoint's
conventions say.
Sources: arXiv 2406.12793; transformers modeling_glm.py for the keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig, read_attention
from headrace.models.decoder import PreNormLayer
from headrace.models.model import Model
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader


class Glm(Model):
    """GlmForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        return read_glm_config(reader, "glm")


def read_glm_config(reader: ConfigReader, model_type: str) -> DecoderConfig:
    """The config of either GLM; they differ in their norms alone."""
    heads, hidden = reader.size("num_attention_heads"), reader.size("hidden_size")
    reader.expect("hidden_act", str, ("silu", "swish"), "silu")
    return DecoderConfig(
        model_type=model_type,
        vocab_size=reader.optional("vocab_size", int),
        hidden_size=hidden,
        intermediate_size=reader.size("intermediate_size"),
        num_layers=reader.size("num_hidden_layers"),
        attention=read_attention(reader, heads, reader.size("head_dim", 128), default_kv_heads=2),
        rope=RopeConfig.read(reader, default_partial=0.5),
        max_positions=reader.size("max_position_embeddings", 131072),
        norm_eps=reader.positive("rms_norm_eps", 1.5625e-7),
        attention_bias=reader.optional("attention_bias", bool),
        output_bias=False,
        mlp_bias=False,
        tied=reader.optional("tie_word_embeddings", bool),
    )
