"""The text of Qwen3-VL, dense sizes: Qwen3, whose positions have three axes in pictures.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(rope(q_norm(q)), rope(k_norm(k)), v))
    y = h + down_proj(silu(gate) * up)

A token of text has the same position along every axis, so that each pair of dimensions turns as in
a plain rope whichever axis `mrope_section` gives it. What a picture adds to the first layers
(`deepstack_visual_indexes`) concerns no text. Tensors of the image encoder are left out
(`weights.model_config.text_part`).
Sources: arXiv 2511.21631; transformers modeling_qwen3_vl.py for the keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig
from headrace.models.decoder import PreNormLayer
from headrace.models.families.llama import read_llama
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader

POSITIONS, THETA = 128000, 500000.0
"""Where a config says nothing."""


class Qwen3VLLayer(PreNormLayer):
    """The shared layer with a norm over each head of Q and K."""

    head_norms = True


class Qwen3VL(Model):
    """The language model of Qwen3VLForConditionalGeneration."""

    layer_type = Qwen3VLLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        return read_llama(
            reader,
            "qwen3_vl_text",
            default_positions=POSITIONS,
            default_kv_heads=32,
            default_theta=THETA,
            default_head_dim=128,
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=False,
        )
