"""Seed-OSS: Llama with biases of Q, K and V, and heads of 128 whatever the width of the stream.

    q, k, v = qkv_proj(norm(x)) + bias
    h = x + o_proj(attention(rope(q), rope(k), v))
    y = h + down_proj(silu(gate) * up)

Sources: github.com/ByteDance-Seed/seed-oss; transformers modeling_seed_oss.py for the keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig
from headrace.models.decoder import PreNormLayer
from headrace.models.families.llama import read_llama
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader


class SeedOss(Model):
    """SeedOssForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        bias = reader.optional("attention_bias", bool)
        output_bias = reader.optional("attention_out_bias", bool)
        if output_bias is None and bias is not None:
            output_bias = False
        return read_llama(
            reader,
            "seed_oss",
            default_positions=524288,
            default_kv_heads=8,
            default_head_dim=128,
            attention_bias=bias,
            output_bias=output_bias,
            mlp_bias=reader.optional("mlp_bias", bool),
        )
