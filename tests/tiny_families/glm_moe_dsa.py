"""Tiny GLM-5s for texts of at most index_topk tokens; in one of them layers share an indexer."""

from __future__ import annotations

from typing import Any

from tests.tiny_families import deepseek_v32
from tests.tiny_families.base import Shapes
from tests.tiny_families.deepseek_v32 import indexed_config

CASES: dict[str, dict[str, Any]] = {
    "glm-moe-dsa": {},
    "glm-moe-dsa-shared": {
        "indexer_types": ["full", "shared", "shared"],
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "v_head_dim": 64,
        "n_shared_experts": 2,
    },
}
BROKEN_RULES: list[tuple[str, dict[str, Any]]] = [
    ("glm-moe-dsa", {"routed_scaling_factor": 1.0}),
    ("glm-moe-dsa", {"norm_topk_prob": False}),
    ("glm-moe-dsa-shared", {"num_experts_per_tok": 3}),
]
BROKEN_TENSORS = [("glm-moe-dsa", "e_score_correction_bias")]


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        indexed_config(
            "glm_moe_dsa",
            "GlmMoeDsaForCausalLM",
            n_group=1,
            topk_group=1,
            rms_norm_eps=1e-5,
            rope_interleave=True,
            indexer_rope_interleave=True,
            rope_theta=1e6,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return deepseek_v32.shapes(config)
