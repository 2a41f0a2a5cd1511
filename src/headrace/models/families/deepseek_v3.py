"""DeepSeek-V3 and R1: latent attention, experts from the best groups beside a shared one.

    h = x + o_proj(latent attention(norm(x)))          models/latent_attention.py
    y = h + down_proj(silu(gate) * up)                 in the first layers; from there on
    y = h + shared(norm(h)) + sum of weight * expert(norm(h))

    scores = sigmoid(router(norm(h)));  chosen: the largest of scores + e_score_correction_bias,
    of the groups whose two largest have the largest sums;  weights = scores of the chosen, over
    their sum + 1e-20 (norm_topk_prob), times routed_scaling_factor

Layers behind the last one predict further tokens (num_nextn_predict_layers): see models/heads/.
Sources: arXiv 2412.19437; transformers modeling_deepseek_v3.py for arithmetic and keys.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from headrace.models.config import (
    DecoderConfig,
    ExpertsConfig,
    read_draft_layers,
    read_layers_behind_dense,
    read_sigmoid_routing,
)
from headrace.models.decoder import ExpertLayer
from headrace.models.experts import ExpertNames
from headrace.models.latent_attention import (
    LatentAttention,
    LatentConfig,
    read_latent_attention,
    read_widths,
)
from headrace.models.loader import Loader
from headrace.models.model import DraftParts, Model
from headrace.models.rope import RopeConfig
from headrace.ops.experts import Routing
from headrace.weights.model_config.config_reader import ConfigReader


class LatentLayer(ExpertLayer):
    """A layer with latent attention, and experts but in layers that the config says are dense."""

    expert_names = ExpertNames(bias="gate.e_score_correction_bias", shared="shared_experts")

    def load_attention(
        self, config: DecoderConfig, loader: Loader, index: int, at: str
    ) -> LatentAttention:
        if not isinstance(config, LatentConfig):
            raise TypeError(f"{at}: latent attention needs a LatentConfig, not {type(config)}")
        return LatentAttention(config, loader, index, f"{at}.self_attn")


class Defaults(NamedTuple):
    """The numbers that a silent config means, where families differ; those of transformers."""

    positions: int = 4096
    query_rank: int = 1536
    nope_width: int = 128
    value_width: int = 128
    dense_layers: int = 3
    experts: int = 256
    chosen: int = 8
    groups: int = 8
    chosen_groups: int = 4
    expert_width: int = 2048
    shared: int = 1
    scale: float = 2.5
    drafts: int = 1
    norm_eps: float = 1e-6


class DeepseekV3(Model):
    """DeepseekV3ForCausalLM."""

    layer_type = LatentLayer
    draft_parts = DraftParts()

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        interleaved = reader.get("rope_interleave", bool, True)
        return read_deepseek(reader, "deepseek_v3", Defaults(), interleaved=interleaved)

    @staticmethod
    def draft_names(config: DecoderConfig) -> Collection[str]:
        """A layer like the others, which joins a token's embedding to what the last one gave."""
        count = 0 if config.experts is None else config.experts.routing.num_experts
        parts = [f"experts.{number}" for number in range(count)] + ["shared_experts"]
        projections = ("gate_proj", "up_proj", "down_proj")
        attention = (
            "q_proj", "q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa",
            "kv_a_layernorm", "kv_b_proj", "k_b_proj", "v_b_proj", "o_proj",
        )  # fmt: skip
        modules = (
            "eh_proj", "enorm", "hnorm", "embed_tokens", "shared_head.head", "shared_head.norm",
            "input_layernorm", "post_attention_layernorm",
            *(f"self_attn.{name}" for name in attention),
            "mlp.gate", *(f"mlp.{part}.{name}" for part in parts for name in projections),
        )  # fmt: skip
        biases = [f"self_attn.{name}.bias" for name in ("q_a_proj", "kv_a_proj_with_mqa", "o_proj")]
        weights = [f"{module}.weight" for module in modules]
        return (*weights, *biases, "mlp.gate.e_score_correction_bias")


def read_deepseek(
    reader: ConfigReader,
    model_type: str,
    defaults: Defaults,
    *,
    interleaved: bool = True,
    routing: Routing | None = None,
    **more: Any,
) -> LatentConfig:
    """A decoder with latent attention in DeepSeek's words. more: fields of the family's own.

    routing: how experts are chosen in families where it is not as in DeepSeek-V3.
    """
    layers = reader.size("num_hidden_layers")
    widths = read_widths(
        reader,
        interleaved=interleaved,
        query_default=defaults.query_rank,
        nope_default=defaults.nope_width,
        value_default=defaults.value_width,
    )
    attention, rope = read_latent_attention(reader, widths, RopeConfig.read(reader))
    reader.expect("hidden_act", str, ("silu", "swish"), "silu")
    # How many machines the authors' code shared the experts out to, and terms of training.
    reader.unused("ep_size", "aux_loss_alpha", "seq_aux")
    # What transformers writes out beside the widths it follows from.
    reader.expect("qk_head_dim", int, (widths.key,), widths.key)
    return LatentConfig(
        model_type=model_type,
        vocab_size=reader.optional("vocab_size", int),
        hidden_size=reader.size("hidden_size"),
        intermediate_size=reader.size("intermediate_size"),
        num_layers=layers,
        attention=attention,
        rope=rope,
        max_positions=reader.size("max_position_embeddings", defaults.positions),
        norm_eps=reader.positive("rms_norm_eps", defaults.norm_eps),
        attention_bias=reader.optional("attention_bias", bool),
        mlp_bias=False,
        tied=reader.optional("tie_word_embeddings", bool),
        experts=_read_experts(reader, layers, defaults, routing or read_routing(reader, defaults)),
        draft_layers=read_draft_layers(reader, default=defaults.drafts),
        widths=widths,
        **more,
    )


def read_routing(reader: ConfigReader, defaults: Defaults) -> Routing:
    """DeepSeek-V3's choice: sigmoids and a bias, of the groups with the best two."""
    reader.expect("scoring_func", str, ("sigmoid",), "sigmoid")
    reader.expect("topk_method", str, ("noaux_tc",), "noaux_tc")
    return read_sigmoid_routing(
        reader,
        experts=defaults.experts,
        chosen=defaults.chosen,
        groups=defaults.groups,
        chosen_groups=defaults.chosen_groups,
        scale=defaults.scale,
    )


def _read_experts(
    reader: ConfigReader, layers: int, defaults: Defaults, routing: Routing
) -> ExpertsConfig:
    # Each so many layers have experts; in all published models every one behind the dense ones.
    reader.expect("moe_layer_freq", int, (1,), 1)
    shared = reader.get("n_shared_experts", int, defaults.shared)
    if not 0 <= shared <= routing.num_experts:
        reader.refuse("n_shared_experts", shared, f"0 to the {routing.num_experts} experts")
    width = reader.size("moe_intermediate_size", defaults.expert_width)
    return ExpertsConfig(
        routing=routing,
        intermediate_size=width,
        layers=read_layers_behind_dense(reader, layers, defaults.dense_layers),
        shared_size=width * shared,
    )
