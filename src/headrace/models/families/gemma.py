"""Gemma 1: Llama with GELU in its gate, wide heads, and embeddings times the root of their width.

    x = embedding * sqrt(hidden)
    h = x + o_proj(attention(rope(q), rope(k), v))
    y = h + down_proj(gelu_tanh(gate) * up)

Norms multiply by 1 + w where Hugging Face stores them (GGUF files store 1 + w), which the
checkpoint's conventions say. Configs call the function "gelu" too: all models were trained with its
approximation by tanh, and transformers computes that under either name.
Sources: arXiv 2403.08295; transformers modeling_gemma.py for the keys.
"""

from __future__ import annotations

import math

from headrace.models.config import DecoderConfig
from headrace.models.decoder import PreNormLayer
from headrace.models.families.gemma2 import Gemma2
from headrace.models.families.llama import read_llama
from headrace.weights.model_config.config_reader import ConfigReader

GELU = "gelu_pytorch_tanh"


class Gemma(Gemma2):
    """GemmaForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        # Written beside hidden_act since 2024, with the name of what is computed.
        reader.expect("hidden_activation", str, (GELU,), GELU)
        reader.expect("use_bidirectional_attention", bool, (False,), False)
        return read_llama(
            reader,
            "gemma",
            default_positions=8192,
            default_kv_heads=16,
            default_head_dim=256,
            activations=(GELU, "gelu"),
            activation="gelu_tanh",
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=False,
            embedding_scale=math.sqrt(reader.size("hidden_size")),
        )
