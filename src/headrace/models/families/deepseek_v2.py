"""DeepSeek-V2 and V2-Lite: latent attention, experts chosen by a softmax beside shared ones.

    h = x + o_proj(latent attention(norm(x)))          models/latent_attention.py
    y = h + down_proj(silu(gate) * up)                 in the first layers; from there on
    y = h + shared(norm(h)) + sum of weight * expert(norm(h))

    scores = softmax(router(norm(h)));  chosen: the largest of all (topk_method "greedy"), or of the
    groups whose largest are the largest ("group_limited_greedy");  weights = scores of the chosen
    times routed_scaling_factor

Sources: arXiv 2405.04434; transformers modeling_deepseek_v2.py for arithmetic and keys.
"""

from __future__ import annotations

from headrace.models.config import (
    DecoderConfig,
    read_expert_count,
    read_experts_per_token,
    read_groups,
)
from headrace.models.experts import ExpertNames
from headrace.models.families.deepseek_v3 import (
    DeepseekV3,
    Defaults,
    LatentLayer,
    read_deepseek,
)
from headrace.ops.experts import Routing
from headrace.weights.model_config.config_reader import ConfigReader

_DEFAULTS = Defaults(
    positions=2048, dense_layers=0, experts=64, groups=1, chosen_groups=1, expert_width=1407,
    shared=2, scale=1.0, drafts=0,
)  # fmt: skip


class DeepseekV2Layer(LatentLayer):
    """A layer whose choice of experts has no bias."""

    expert_names = ExpertNames(shared="shared_experts")


class DeepseekV2(DeepseekV3):
    """DeepseekV2ForCausalLM."""

    layer_type = DeepseekV2Layer

    @staticmethod
    def read_config(reader: ConfigReader) -> DecoderConfig:
        reader.expect("mlp_bias", bool, (False,), False)
        return read_deepseek(reader, "deepseek_v2", _DEFAULTS, routing=_read_routing(reader))


def _read_routing(reader: ConfigReader) -> Routing:
    reader.expect("scoring_func", str, ("softmax",), "softmax")
    # transformers passes over it, the authors' code does not.
    reader.expect("norm_topk_prob", bool, (False,), False)
    method = reader.expect("topk_method", str, ("greedy", "group_limited_greedy"), "greedy")
    count = read_expert_count(reader, "n_routed_experts", _DEFAULTS.experts)
    chosen = read_experts_per_token(reader, count)
    groups, chosen_groups = 1, 1
    if method == "greedy":
        reader.unused("n_group", "topk_group")
    else:
        groups, chosen_groups = read_groups(reader, count, chosen)
    return Routing(
        num_experts=count,
        experts_per_token=chosen,
        score="softmax",
        normalised=False,
        scale=reader.positive("routed_scaling_factor", _DEFAULTS.scale),
        num_groups=groups,
        chosen_groups=chosen_groups,
        group_score="max",
    )
