"""OLMo 3: windows in three layers of four, and a rope that is scaled in the others."""

from __future__ import annotations

from typing import Any

from tests.tiny_families import olmo2
from tests.tiny_families.base import Shapes, base_config

_YARN = {
    "rope_type": "yarn",
    "factor": 8.0,
    "original_max_position_embeddings": 64,
    "attention_factor": 1.2079441541679836,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}

CASES: dict[str, dict[str, Any]] = {
    "olmo3": {"num_hidden_layers": 4},
    # In the words of transformers 5, a base for each kind of layer.
    "olmo3-types": {
        "layer_types": ["full_attention", "sliding_attention"],
        "sliding_window": 40,
        "attention_bias": True,
        "rope_scaling": None,
        "rope_theta": None,
        "rope_parameters": {
            "full_attention": {**_YARN, "rope_theta": 10000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
        },
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("olmo3", {"sliding_window": 512}),
    ("olmo3", {"rope_scaling": None}),
    ("olmo3-types", {"layer_types": ["sliding_attention", "full_attention"]}),
)
BROKEN_TENSORS = (("olmo3", "k_norm.weight"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "olmo3",
            "Olmo3ForCausalLM",
            hidden_act="silu",
            rms_norm_eps=1e-6,
            rope_theta=500000.0,
            rope_scaling=_YARN,
            sliding_window=24,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return olmo2.shapes(config)
