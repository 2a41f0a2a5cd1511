"""Mixtral (8x7B, 8x22B): Mistral whose MLP is experts.

    q, k, v = qkv_proj(norm(x))
    h = x + o_proj(attention(rope(q), rope(k), v))
    y = h + sum of weight * expert(norm(h))        expert: w2(silu(w1(x)) * w3(x))

    scores = softmax(router(norm(h))); chosen: the largest; weights: their scores over their sum

intermediate_size is that of one expert.
Sources: arXiv 2401.04088; transformers modeling_mixtral.py for the keys.
"""

from __future__ import annotations

from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    read_expert_count,
    read_experts_per_token,
    read_layer_windows,
    read_window,
)
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames
from headrace.models.families.llama import read_llama
from headrace.models.model import Model
from headrace.ops.experts import RouterScore, Routing
from headrace.weights.model_config.config_reader import ConfigReader

MIXTRAL_NAMES = ExpertNames(gate="w1", up="w3", down="w2")


class MixtralLayer(ExpertLayer):
    """A layer with experts, by Mixtral's names."""

    mlp_name = "block_sparse_moe"
    expert_names = MIXTRAL_NAMES


class Mixtral(Model):
    """MixtralForCausalLM."""

    layer_type = MixtralLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        layers = reader.size("num_hidden_layers")
        window = read_window(reader, 0) if reader.states("sliding_window") else 0
        # Noise on the router's input while training.
        reader.unused("router_jitter_noise")
        return read_llama(
            reader,
            "mixtral",
            default_positions=131072,
            default_kv_heads=8,
            default_theta=1e6,
            default_eps=1e-5,
            attention_bias=False,
            mlp_bias=False,
            windows=read_layer_windows(reader, window, (window,) * layers) if window else (),
            experts=read_local_experts(reader, layers, "softmax", count=8),
        )


def read_local_experts(
    reader: ConfigReader, layers: int, score: RouterScore, *, count: int, jitter: float = 0.0
) -> ExpertsConfig:
    """Experts in every layer, in the words of Mixtral's config; count is what silence means."""
    experts = read_expert_count(reader, "num_local_experts", count)
    return ExpertsConfig(
        routing=Routing(
            num_experts=experts,
            experts_per_token=read_experts_per_token(reader, experts, 2),
            score=score,
            normalised=score == "softmax",
            jitter=jitter,
        ),
        intermediate_size=reader.size("intermediate_size"),
        layers=(True,) * layers,
    )
