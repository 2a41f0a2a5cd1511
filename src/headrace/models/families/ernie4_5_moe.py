"""ERNIE 4.5 with experts (21B-A3B, 300B-A47B): ERNIE 4.5 whose MLP is experts from some layer on.

    h = x + o_proj(attention(rope(q), rope(k), v))
    y = h + down_proj(silu(gate) * up)                 in layers without experts; in the others
    y = h + shared(norm(h)) + sum of weight * expert(norm(h))

    scores = softmax(router(norm(h)));  chosen: the largest of scores + e_score_correction_bias
    weights = scores of the chosen, over their sum

All projections but those of experts, and lm_head, may have biases (use_bias).
Layers from moe_layer_start_index to moe_layer_end_index have experts where their number, counted
from 1, is a multiple of moe_layer_interval. The least sum to divide by (moe_norm_min) is one that
guards against a division by zero; a larger one is refused. Layers that predict further tokens
(num_nextn_predict_layers) stand under `model.mtp_block`, have a dense MLP, read what goes into the
final norm and end in that norm (models/heads/mtp.py).
Sources: the ERNIE 4.5 technical report; transformers modeling_ernie4_5_moe.py for arithmetic and
keys; the vendor's modelling code (ERNIE's modeling_moe.py, FastDeploy's ernie4_5_mtp.py) for the
layers that predict. vLLM and SGLang leave out that norm, and embed the first token as zeros.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    of_layers,
    read_draft_layers,
    read_expert_count,
    read_experts_per_token,
)
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames
from headrace.models.families.ernie4_5 import MAX_POSITIONS, NORM_EPS, THETA
from headrace.models.families.llama import read_llama
from headrace.models.model import DraftParts, Model
from headrace.ops.experts import Routing
from headrace.weights.architectures.ernie import read_least_sum
from headrace.weights.model_config.config_reader import ConfigReader


class ErnieMoeLayer(ExpertLayer):
    """A layer with experts beside shared ones, or a dense one."""

    expert_names = ExpertNames(
        bias="moe_statics.e_score_correction_bias", bias_is_row=True, shared="shared_experts"
    )


class ErnieMoe(Model):
    """Ernie4_5_MoeForCausalLM."""

    layer_type = ErnieMoeLayer
    drafts_name = "model.mtp_block"
    drafts_behind = False
    draft_parts = DraftParts(
        token_norm="mtp_emb_norm",
        feature_norm="mtp_hidden_norm",
        join="mtp_linear_proj",
        final_norm=None,
        features_normed=False,
        apart="model.{part}.{layer}",
    )

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        bias = reader.get("use_bias", bool, False)
        return read_llama(
            reader,
            "ernie4_5_moe",
            default_positions=MAX_POSITIONS,
            default_kv_heads=4,
            default_theta=THETA,
            default_eps=NORM_EPS,
            attention_bias=bias,
            mlp_bias=bias,
            head_bias=None if bias else False,
            experts=_read_experts(reader),
            draft_layers=read_draft_layers(reader),
        )

    @staticmethod
    def draft_config(config: DecoderConfig, count: int) -> DecoderConfig:
        """Dense layers."""
        return of_layers(config, [config.num_layers - 1] * count, dense=True)

    @staticmethod
    def draft_names(config: DecoderConfig) -> Collection[str]:
        """A dense layer; what joins a token's embedding to it stands under names of its own."""
        projections = (
            *(f"self_attn.{letter}_proj" for letter in "qkvo"),
            *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
        )
        norms = ("input_layernorm", "post_attention_layernorm")
        weights = [f"{module}.weight" for module in (*norms, *projections)]
        return (*weights, *(f"{module}.bias" for module in projections))


def _read_experts(reader: ConfigReader) -> ExpertsConfig:
    count = read_expert_count(reader, "moe_num_experts", 64)
    read_least_sum(reader)
    width = reader.size("moe_intermediate_size", 1536)
    shared = reader.get("moe_num_shared_experts", int, 2)
    if not 0 <= shared <= count:
        reader.refuse("moe_num_shared_experts", shared, f"0 to the {count} experts")
    return ExpertsConfig(
        routing=Routing(
            num_experts=count,
            experts_per_token=read_experts_per_token(reader, count, 6, key="moe_k"),
            score="softmax",
            normalised=True,
        ),
        intermediate_size=width,
        layers=_read_sparse(reader),
        shared_size=width * shared,
    )


def _read_sparse(reader: ConfigReader) -> tuple[bool, ...]:
    layers = reader.size("num_hidden_layers")
    interval = reader.size("moe_layer_interval", 1)
    start = reader.get("moe_layer_start_index", int, 1)
    if not 0 <= start <= layers:
        reader.refuse("moe_layer_start_index", start, f"0 to num_hidden_layers {layers}")
    end = reader.get("moe_layer_end_index", int, -1)
    if not -1 <= end < layers:
        reader.refuse("moe_layer_end_index", end, f"-1 to {layers - 1}")
    end = layers - 1 if end == -1 else end
    return tuple((index + 1) % interval == 0 and start <= index <= end for index in range(layers))
