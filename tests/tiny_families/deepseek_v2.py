"""Tiny DeepSeek-V2s: as V2 with groups of experts, and as V2-Lite with one product of queries."""

from __future__ import annotations

from typing import Any

from tests.tiny_families import deepseek_v3
from tests.tiny_families.base import Shapes
from tests.tiny_families.deepseek_v3 import GROUPS, YARN, latent_config

LITE = {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707}

CASES: dict[str, dict[str, Any]] = {
    "deepseek-v2": {**GROUPS, "topk_method": "group_limited_greedy", "rope_scaling": YARN},
    "deepseek-v2-lite": {"q_lora_rank": None, "n_shared_experts": 2, "rope_scaling": LITE},
}
BROKEN_RULES: list[tuple[str, dict[str, Any]]] = [
    ("deepseek-v2", {"topk_method": "greedy"}),
    ("deepseek-v2", {"routed_scaling_factor": 1.0}),
    ("deepseek-v2-lite", {"rope_scaling": {**LITE, "mscale": 0.0, "mscale_all_dim": 0.0}}),
    ("deepseek-v2-lite", {"num_experts_per_tok": 3}),
]


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        latent_config(
            "deepseek_v2",
            "DeepseekV2ForCausalLM",
            n_group=1,
            topk_group=1,
            norm_topk_prob=False,
            scoring_func="softmax",
            topk_method="greedy",
            aux_loss_alpha=0.001,
            seq_aux=True,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return deepseek_v3.shapes(config, bias=False)
