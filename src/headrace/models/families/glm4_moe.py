"""GLM-4.5 and 4.6: Llama's decoder with half of each head rotated, and experts from some layer on.

    q, k, v = qkv_proj(norm(x))                        Q, K and V may have biases; o_proj has none
    h = x + o_proj(attention(rope(q_norm(q)), rope(k_norm(k)), v))      norms of heads: use_qk_norm
    y = h + down_proj(silu(gate) * up)                 in the first layers; from there on
    y = h + shared(norm(h)) + sum of weight * expert(norm(h))

    scores = sigmoid(router(norm(h)));  chosen: the largest of scores + e_score_correction_bias,
    of the groups whose two largest have the largest sums;  weights = scores of the chosen, over
    their sum + 1e-20 (norm_topk_prob), times routed_scaling_factor

Layers behind the last one predict further tokens (num_nextn_predict_layers): see models/heads/.
Sources: arXiv 2508.06471; transformers modeling_glm4_moe.py for arithmetic and keys.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headrace.models.blocks import Attention
from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    read_attention,
    read_draft_layers,
    read_layers_behind_dense,
    read_sigmoid_routing,
)
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames
from headrace.models.loader import Loader
from headrace.models.model import DraftParts, Model
from headrace.models.rope import RopeConfig
from headrace.weights.model_config.config_reader import ConfigReader

_NAMES = ExpertNames(bias="gate.e_score_correction_bias", shared="shared_experts")


@dataclass(frozen=True)
class Glm4MoeConfig(DecoderConfig):
    """The config of a GLM-4.5."""

    head_norms: bool | None = None
    """Whether heads of Q and K have norms; None where the file does not say."""


class Glm4MoeLayer(ExpertLayer):
    """A layer with experts, and norms over each head of Q and K where the model has them."""

    expert_names = _NAMES

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> Attention:
        attention = Attention.load(config, loader, index, f"{at}.self_attn")
        stated = config.head_norms if isinstance(config, Glm4MoeConfig) else None
        if loader.has(f"{at}.self_attn.q_norm.weight") if stated is None else stated:
            attention.load_head_norms(config, loader, f"{at}.self_attn")
        return attention


class Glm4Moe(Model):
    """Glm4MoeForCausalLM."""

    layer_type = Glm4MoeLayer
    draft_parts = DraftParts()

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        heads, layers = reader.size("num_attention_heads"), reader.size("num_hidden_layers")
        hidden = reader.size("hidden_size")
        head_dim = reader.size("head_dim", hidden // heads)
        reader.expect("hidden_act", str, ("silu", "swish"), "silu")
        return Glm4MoeConfig(
            model_type="glm4_moe",
            vocab_size=reader.optional("vocab_size", int),
            hidden_size=hidden,
            intermediate_size=reader.size("intermediate_size"),
            num_layers=layers,
            attention=read_attention(reader, heads, head_dim, default_kv_heads=8),
            rope=RopeConfig.read(reader, default_partial=0.5),
            max_positions=reader.size("max_position_embeddings", 131072),
            norm_eps=reader.positive("rms_norm_eps", 1e-5),
            attention_bias=reader.optional("attention_bias", bool),
            output_bias=False,
            mlp_bias=False,
            tied=reader.optional("tie_word_embeddings", bool),
            experts=_read_experts(reader, layers),
            draft_layers=read_draft_layers(reader),
            head_norms=reader.optional("use_qk_norm", bool),
        )

    @staticmethod
    def draft_names(config: DecoderConfig) -> Collection[str]:
        """A layer like the others, which joins a token's embedding to what the last one gave."""
        count = 0 if config.experts is None else config.experts.routing.num_experts
        parts = [f"experts.{number}" for number in range(count)] + ["shared_experts"]
        projections = ("gate_proj", "up_proj", "down_proj")
        biases = [f"self_attn.{letter}_proj.bias" for letter in "qkv"]
        modules = (
            "eh_proj", "enorm", "hnorm", "embed_tokens", "shared_head.head", "shared_head.norm",
            "input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm",
            *(f"self_attn.{letter}_proj" for letter in "qkvo"),
            "mlp.gate", *(f"mlp.{part}.{name}" for part in parts for name in projections),
        )  # fmt: skip
        weights = [f"{module}.weight" for module in modules]
        return (*weights, *biases, "mlp.gate.e_score_correction_bias")


def _read_experts(reader: ConfigReader, layers: int) -> ExpertsConfig:
    width = reader.size("moe_intermediate_size", 1408)
    return ExpertsConfig(
        routing=read_sigmoid_routing(reader, experts=128, chosen=8),
        intermediate_size=width,
        layers=read_layers_behind_dense(reader, layers, 1),
        shared_size=width * reader.size("n_shared_experts", 1),
    )
