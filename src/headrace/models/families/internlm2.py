"""InternLM 2 and 2.5: Llama under other names, with Q, K and V stored as one matrix.

    h = x + wo(attention(rope(q), rope(k), v))
    y = h + w2(silu(w1(norm(h))) * w3(norm(h)))

Folders hold the heads of Q with those of K and V that they share (`wqkv`), GGUF files each of the
three; names and rows are Llama's by the time they get here (`weights.hugging_face.forms`).
transformers has no class for it; its own code is published beside the weights.
Sources: arXiv 2403.17297; llama.cpp models/internlm2.cpp and conversion/internlm.py.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig
from headrace.models.decoder import PreNormLayer
from headrace.models.families.llama import read_llama
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader


class InternLM2(Model):
    """InternLM2ForCausalLM."""

    layer_type = PreNormLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        reader.expect("bias", bool, (False,), False)
        # Which of the authors' implementations computes attention.
        reader.unused("attn_implementation")
        return read_llama(
            reader, "internlm2", attention_bias=False, output_bias=False, mlp_bias=False
        )
