"""Mistral 7B, Nemo, Small: Llama whose layers may all see no further back than a window.

    h = x + o_proj(attention(rope(q), rope(k), v, window))
    y = h + down_proj(silu(gate) * up)

Version 0.1 has a window of 4096, later ones have none (null). head_dim is a key of its own and need
not be hidden_size / heads (Nemo).
Sources: arXiv 2310.06825; transformers modeling_mistral.py for the keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig, read_window
from headrace.models.decoder import PreNormLayer
from headrace.models.families.llama import read_llama
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import FULL, WINDOWED


class Mistral(Model):
    """MistralForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        layers = reader.size("num_hidden_layers")
        window = read_window(reader, 4096)
        # Lists that differ by layer are another family's (Ministral); here they have no effect.
        reader.expect_all("layer_types", WINDOWED if window else FULL, layers)
        for key in ("attention_bias", "mlp_bias"):
            reader.expect(key, bool, (False,), False)
        return read_llama(
            reader,
            "mistral",
            default_positions=131072,
            default_kv_heads=8,
            windows=(window,) * layers if window else (),
            attention_bias=False,
            mlp_bias=False,
        )
