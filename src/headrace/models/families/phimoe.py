"""Phi-3.5-MoE: Mixtral with LayerNorms and biases, whose router is a sparse mixer.

    q, k, v = qkv_proj(norm(x)) + bias
    h = x + o_proj(attention(rope(q), rope(k), v)) + bias
    y = h + sum of weight * expert(norm(h))        expert: w2(silu(w1(x)) * w3(x))
    logits = lm_head(norm(y)) + bias

    first: the largest score; its weight: the softmax over scores that are within
    2 * router_jitter_noise of it. second: the same without the first. Weights are not normalised

longrope has one factor of cos and sin (short_mscale and long_mscale, which must be equal).
Sources: arXiv 2409.12136; transformers modeling_phimoe.py for arithmetic and keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig, read_uniform_windows
from headrace.models.decoder import ExpertLayer
from headrace.models.families.llama import read_llama
from headrace.models.families.mixtral import MIXTRAL_NAMES, read_local_experts
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader


class PhimoeLayer(ExpertLayer):
    """A layer with experts, by Mixtral's names."""

    mlp_name = "block_sparse_moe"
    expert_names = MIXTRAL_NAMES


class Phimoe(Model):
    """PhimoeForCausalLM."""

    layer_type = PhimoeLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        layers = reader.size("num_hidden_layers")
        positions = reader.size("max_position_embeddings", 131072)
        jitter = reader.positive("router_jitter_noise", 0.01)
        # Noise on the router's input while training.
        reader.unused("input_jitter_noise")
        return read_llama(
            reader,
            "phimoe",
            default_positions=131072,
            default_kv_heads=8,
            default_theta=1e6,
            default_eps=1e-5,
            norm="layer",
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=False,
            head_bias=reader.optional("lm_head_bias", bool),
            windows=read_uniform_windows(reader, layers, positions),
            experts=read_local_experts(reader, layers, "sparsemixer", count=16, jitter=jitter),
        )
