"""ERNIE 4.5, the dense size (0.3B): Llama whose heads rotate neighbouring pairs.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(rope(q), rope(k), v))
    y = h + down_proj(silu(gate) * up)

All projections have biases where use_bias says so.
Sources: the ERNIE 4.5 technical report; transformers modeling_ernie4_5.py for arithmetic and keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig
from headrace.models.decoder import PreNormLayer
from headrace.models.families.llama import read_llama
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader

THETA, NORM_EPS, MAX_POSITIONS = 500000.0, 1e-5, 131072
"""What a silent config means."""


class Ernie(Model):
    """Ernie4_5ForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        bias = reader.get("use_bias", bool, False)
        return read_llama(
            reader,
            "ernie4_5",
            default_positions=MAX_POSITIONS,
            default_kv_heads=2,
            default_head_dim=128,
            default_theta=THETA,
            default_eps=NORM_EPS,
            attention_bias=bias,
            mlp_bias=bias,
        )
