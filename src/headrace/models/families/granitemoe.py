"""Granite 3 with experts (1B-A400M, 3B-A800M): Granite whose MLP is experts.

    x = embedding_multiplier * embedding
    h = x + residual_multiplier * o_proj(attention(rope(q), rope(k), v, scale))
    y = h + residual_multiplier * sum of weight * expert(norm(h))
    logits = lm_head(norm(y)) / logits_scaling

    chosen: the largest of router(norm(h)); weights: the softmax of these alone

intermediate_size is that of one expert. Folders hold all experts of a layer as two tensors.
Sources: transformers modeling_granitemoe.py for arithmetic and keys.
"""

from __future__ import annotations

from headrace.models.config import DecoderConfig
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames
from headrace.models.families.granite import read_granite
from headrace.models.families.mixtral import read_local_experts
from headrace.models.model import Model
from headrace.weights.model_config.config_reader import ConfigReader


class GraniteMoeLayer(ExpertLayer):
    """A layer with experts, by Granite's names."""

    mlp_name = "block_sparse_moe"
    expert_names = ExpertNames(router="router.layer")


class GraniteMoe(Model):
    """GraniteMoeForCausalLM."""

    layer_type = GraniteMoeLayer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        layers = reader.size("num_hidden_layers")
        return read_granite(
            reader,
            "granitemoe",
            mlp_bias=False,
            experts=read_local_experts(reader, layers, "softmax_of_chosen", count=8),
        )
