"""OLMoE (1B-7B): Llama with norms of Q and K as wide as they are, whose MLP is experts.

    q, k, v = q_norm(q_proj(norm(x))), k_norm(k_proj(norm(x))), v_proj(norm(x))
    h = x + o_proj(attention(rope(q), rope(k), v))
    y = h + sum of weight * expert(norm(h))

    scores = softmax(router(norm(h))); chosen: the largest; weights: their scores, over their sum
    where norm_topk_prob

intermediate_size is that of one expert. Q, K and V that are clipped (clip_qkv) are refused.
Sources: arXiv 2409.02060; transformers modeling_olmoe.py for the keys.
"""

from __future__ import annotations

from headrace.models.blocks import Attention, ColumnNormAttention
from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    read_expert_count,
    read_experts_per_token,
)
from headrace.models.decoder import ExpertLayer
from headrace.models.families.llama import read_llama
from headrace.models.loader import Loader
from headrace.models.model import Model
from headrace.ops.experts import Routing
from headrace.weights.model_config.config_reader import ConfigReader


class OlmoeLayer(ExpertLayer):
    """A layer with experts, and norms over all heads of Q and of K at once."""

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> Attention:
        attention = ColumnNormAttention.load(config, loader, index, f"{at}.self_attn")
        attention.load_head_norms(config, loader, f"{at}.self_attn")
        return attention


class Olmoe(Model):
    """OlmoeForCausalLM."""

    layer_type = OlmoeLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        clip = reader.optional("clip_qkv", float)
        if clip is not None:
            reader.refuse("clip_qkv", clip, "null")
        experts = read_expert_count(reader, "num_experts", 64)
        return read_llama(
            reader,
            "olmoe",
            default_positions=4096,
            default_eps=1e-5,
            attention_bias=reader.optional("attention_bias", bool),
            mlp_bias=False,
            experts=ExpertsConfig(
                routing=Routing(
                    num_experts=experts,
                    experts_per_token=read_experts_per_token(reader, experts, 8),
                    score="softmax",
                    normalised=reader.get("norm_topk_prob", bool, False),
                ),
                intermediate_size=reader.size("intermediate_size"),
                layers=(True,) * reader.size("num_hidden_layers"),
            ),
        )
