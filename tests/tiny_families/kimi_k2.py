"""A tiny Kimi K2: DeepSeek-V3 without groups, under a type of its own.

transformers has no class for the type; the folders name DeepSeek-V3's, which it is compared with.
"""

from __future__ import annotations

from typing import Any

from tests.tiny_families import deepseek_v3
from tests.tiny_families.base import Shapes
from tests.tiny_families.deepseek_v3 import YARN

SAME_AS = "deepseek_v3"
ORACLE = "transformers (as a DeepSeek-V3)"

CASES: dict[str, dict[str, Any]] = {
    # K2's bounds of yarn are equal.
    "kimi-k2": {"rope_scaling": {**YARN, "beta_fast": 1.0, "beta_slow": 1.0}},
    "kimi-k2-two-shared": {"n_shared_experts": 2, "num_attention_heads": 2},
}
BROKEN_RULES: list[tuple[str, dict[str, Any]]] = [
    ("kimi-k2", {"rope_scaling": YARN}),
    ("kimi-k2", {"routed_scaling_factor": 2.0}),
]
BROKEN_TENSORS = [("kimi-k2", "e_score_correction_bias")]


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    heads = overrides.get("num_attention_heads", 4)
    return (
        deepseek_v3.config(
            model_type="kimi_k2",
            num_key_value_heads=heads,
            n_group=1,
            topk_group=1,
            routed_scaling_factor=2.827,
            rope_theta=50000.0,
            aux_loss_alpha=0.001,
            seq_aux=True,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return deepseek_v3.shapes(config)
