"""Qwen3 with experts (30B-A3B, 235B-A22B, Coder): Qwen3 whose MLP is experts.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(rope(q_norm(q)), rope(k_norm(k)), v))
    y = h + sum of weight * expert(norm(h))

    scores = softmax(router(norm(h))); chosen: the largest; weights: their scores, over their sum
    where norm_topk_prob

Layers that mlp_only_layers lists, or that are not a multiple of decoder_sparse_step, have one MLP.
Sources: arXiv 2505.09388; transformers modeling_qwen3_moe.py for the keys.
"""

from __future__ import annotations

from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    read_expert_count,
    read_experts_per_token,
    read_sparse_layers,
)
from headrace.models.decoder import ExpertLayer
from headrace.models.families.llama import read_llama
from headrace.models.model import Model
from headrace.ops.experts import Routing
from headrace.weights.model_config.config_reader import ConfigReader
from headrace.weights.model_config.rope_config import FULL


class Qwen3MoeLayer(ExpertLayer):
    """A layer with experts and a norm over each head of Q and K."""

    head_norms = True


class Qwen3Moe(Model):
    """Qwen3MoeForCausalLM."""

    layer_type = Qwen3MoeLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        layers = reader.size("num_hidden_layers")
        reader.expect("use_sliding_window", bool, (False,), False)
        # Windows are off; which layers would have one no longer matters, but the list must agree.
        reader.unused("sliding_window", "max_window_layers")
        reader.expect_all("layer_types", FULL, layers)
        # What Qwen3-Coder's configs say besides, in words that transformers does not read.
        reader.expect("qkv_bias", bool, (False,), False)
        reader.expect("use_qk_norm", bool, (True,), True)
        reader.expect("shared_expert_intermediate_size", int, (0,), 0)
        return read_llama(
            reader,
            "qwen3_moe",
            default_positions=32768,
            default_kv_heads=4,
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=False,
            experts=read_qwen_experts(reader, layers, count=128, chosen=8, width=768),
        )


def read_qwen_experts(
    reader: ConfigReader,
    layers: int,
    *,
    count: int,
    chosen: int,
    width: int,
    shared_size: int = 0,
    normalised: bool = False,
) -> ExpertsConfig:
    """Experts in the words of Qwen's configs; count, chosen, width and normalised are what silence
    means.
    """
    experts = read_expert_count(reader, "num_experts", count)
    return ExpertsConfig(
        routing=Routing(
            num_experts=experts,
            experts_per_token=read_experts_per_token(reader, experts, chosen),
            score="softmax",
            normalised=reader.get("norm_topk_prob", bool, normalised),
        ),
        intermediate_size=reader.size("moe_intermediate_size", width),
        layers=read_sparse_layers(reader, layers),
        shared_size=shared_size,
    )
