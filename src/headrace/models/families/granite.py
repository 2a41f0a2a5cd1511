"""Granite 3 (dense): Llama with four multipliers.

    x = embedding_multiplier * embedding
    h = x + residual_multiplier * o_proj(attention(rope(q), rope(k), v, scale))
    y = h + residual_multiplier * down_proj(silu(gate) * up)
    logits = lm_head(norm(y)) / logits_scaling

Scores are scaled by attention_multiplier, whatever the width of a head.
Sources: arXiv 2408.13359 (the multipliers); transformers modeling_granite.py for the keys.
"""

from __future__ import annotations

from typing import Any

from headrace.models.config import DecoderConfig
from headrace.models.decoder import PreNormLayer
from headrace.models.families.llama import read_llama
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader


class Granite(Model):
    """GraniteForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        return read_granite(reader, "granite", mlp_bias=reader.optional("mlp_bias", bool))


def read_granite(reader: ConfigReader, model_type: str, **fields: Any) -> DecoderConfig:
    """Keys that both Granites share; `fields` of the config win."""
    return read_llama(
        reader,
        model_type,
        scale=reader.positive("attention_multiplier", 1.0),
        embedding_scale=reader.positive("embedding_multiplier", 1.0),
        residual_scale=reader.positive("residual_multiplier", 1.0),
        logit_scale=1.0 / reader.positive("logits_scaling", 1.0),
        attention_bias=reader.optional("attention_bias", bool),
        **fields,
    )
