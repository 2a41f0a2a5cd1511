"""Qwen2 and Qwen2.5 (dense): Llama with biases on Q, K and V alone, and windows on upper layers.

    q, k, v = qkv_proj(norm(x)) + bias
    h = x + o_proj(attention(rope(q), rope(k), v))
    y = h + down_proj(silu(gate) * up)

Published models state a window and, beside it, that it is not used.
Sources: arXiv 2407.10671, 2412.15115; transformers configuration_qwen2.py for the keys.
"""

from __future__ import annotations

from typing import Any

from headrace.models.config import DecoderConfig, read_layer_windows, read_window
from headrace.models.decoder import PreNormLayer
from headrace.models.families.llama import read_llama
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader


class Qwen2(Model):
    """Qwen2ForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        return read_qwen2(reader, "qwen2")


def read_qwen2(reader: ConfigReader, model_type: str, **fields: Any) -> DecoderConfig:
    """Keys of Qwen2 and of families that compute as it does; `fields` are added to the config."""
    for key, value in (("attention_bias", True), ("mlp_bias", False)):
        reader.expect(key, bool, (value,), value)
    return read_llama(
        reader,
        model_type,
        default_positions=32768,
        default_kv_heads=32,
        windows=_read_upper_windows(reader),
        attention_bias=True,
        output_bias=False,
        mlp_bias=False,
        **fields,
    )


def _read_upper_windows(reader: ConfigReader) -> tuple[int, ...]:
    """Window of each layer where those from `max_window_layers` on have one, or as `layer_types`
    says. A window that is not used says nothing.
    """
    layers, first = reader.size("num_hidden_layers"), reader.get("max_window_layers", int, 28)
    used = reader.get("use_sliding_window", bool, False)
    window = read_window(reader, 4096) if used else 0
    reader.unused("sliding_window")
    usual = tuple(window if index >= first else 0 for index in range(layers))
    return read_layer_windows(reader, window, usual)
