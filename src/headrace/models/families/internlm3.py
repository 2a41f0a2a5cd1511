"""InternLM 3: Llama, with two heads of K and V, and biases in words of its own.

    h = x + o_proj(attention(rope(q), rope(k), v))
    y = h + down_proj(silu(gate) * up)

`qkv_bias` speaks of Q, K and V, `bias` of o_proj and the MLP. The published model's rope is
dynamic: its base follows from the longest request served. GGUF files of it are Llama's.
Sources: huggingface.co/internlm/internlm3-8b-instruct; transformers configuration_internlm3.py,
which computes it as a Llama.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig
from headrace.models.decoder import PreNormLayer
from headrace.models.families.llama import read_llama
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader


class InternLM3(Model):
    """InternLM3ForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        # transformers has the names of either side for both.
        attention = _bias(reader, "qkv_bias", "attention_bias")
        other = _bias(reader, "bias", "mlp_bias")
        return read_llama(
            reader,
            "internlm3",
            default_positions=32768,
            default_kv_heads=2,
            default_head_dim=128,
            default_eps=1e-5,
            attention_bias=attention,
            output_bias=other,
            mlp_bias=other,
        )


def _bias(reader: ConfigReader, name: str, other: str) -> bool | None:
    stated = reader.optional(name, bool)
    also = reader.optional(other, bool)
    if stated is not None and also not in (None, stated):
        reader.refuse(other, also, f"{stated}, as {name} has it")
    return also if stated is None else stated
