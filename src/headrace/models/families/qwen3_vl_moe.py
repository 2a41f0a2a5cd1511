"""The text of Qwen3-VL with experts (30B-A3B, 235B-A22B): Qwen3-VL whose MLP is experts.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(rope(q_norm(q)), rope(k_norm(k)), v))
    y = h + sum of weight * expert(norm(h))

    scores = softmax(router(norm(h))); chosen: the largest; weights: their scores over their sum

Positions and what is left out are as in `qwen3_vl`. Folders hold the experts of a layer as stacks
[experts, columns, rows].
Sources: arXiv 2511.21631; transformers modeling_qwen3_vl_moe.py for the keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig
from headrace.models.families.llama import read_llama
from headrace.models.families.qwen3_moe import Qwen3MoeLayer, read_qwen_experts
from headrace.models.families.qwen3_vl import POSITIONS, THETA
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader


class Qwen3VLMoe(Model):
    """The language model of Qwen3VLMoeForConditionalGeneration."""

    layer_type = Qwen3MoeLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        layers = reader.size("num_hidden_layers")
        # transformers divides by the sum whatever a config says.
        reader.expect("norm_topk_prob", bool, (True,), True)
        experts = read_qwen_experts(reader, layers, count=60, chosen=4, width=1408, normalised=True)
        return read_llama(
            reader,
            "qwen3_vl_moe_text",
            default_positions=POSITIONS,
            default_kv_heads=16,
            default_theta=THETA,
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=False,
            experts=experts,
        )
