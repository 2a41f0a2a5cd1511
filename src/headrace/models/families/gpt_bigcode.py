"""StarCoder 1 and SantaCoder: GPT-2 with one head of K and V for all heads of Q.

Arithmetic and names are GPT-2's; matrices are stored (out, in). Models without `multi_query` store
Q, K and V head by head, which the checkpoint's conventions say.
Sources: arXiv 2301.03988, 2305.06161; transformers modeling_gpt_bigcode.py for the keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig
from headrace.models.families.gpt2 import GELU_TANH, GPT2, read_gpt2
from headrace.weights.model_config.config_reader import ConfigReader


class GPTBigCode(GPT2):
    """GPTBigCodeForCausalLM."""

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        multi_query = reader.get("multi_query", bool, True)
        kv_heads = 1 if multi_query else reader.size("n_head")
        # Written beside it by transformers, which never reads it.
        reader.expect("num_key_value_heads", int, (kv_heads,), kv_heads)
        return read_gpt2(
            reader,
            "gpt_bigcode",
            kv_heads=kv_heads,
            activations={"gelu": "gelu", **GELU_TANH},
            usual="gelu_pytorch_tanh",
        )
