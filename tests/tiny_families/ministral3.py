"""Ministral 3: queries scaled by position, beside yarn."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000000.0,
    "factor": 16.0,
    "original_max_position_embeddings": 24,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.5,
}

CASES: dict[str, dict[str, Any]] = {
    # The prompt passes the length twice, and the steps pass it again.
    "ministral3": {},
    # As the smallest size: wide heads, tied, yarn's own factor.
    "ministral3-tied": {
        "head_dim": 32,
        "tie_word_embeddings": True,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
            "original_max_position_embeddings": 64, "llama_4_scaling_beta": 0.3,
        },
    },
    "ministral3-window": {
        "sliding_window": 40,
        "rope_parameters": {**_YARN, "original_max_position_embeddings": 16, "mscale_all_dim": 2.0},
    },
}  # fmt: skip

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ministral3", {"rope_parameters": {**_YARN, "llama_4_scaling_beta": 1e-9}}),
    ("ministral3", {"rope_parameters": {**_YARN, "mscale_all_dim": 2.0}}),
    ("ministral3-window", {"sliding_window": None}),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = base_config(
        "ministral3",
        "Ministral3ForCausalLM",
        hidden_act="silu",
        rms_norm_eps=1e-5,
        head_dim=16,
        sliding_window=None,
        rope_parameters=_YARN,
    )
    for key in ("attention_bias", "rope_theta"):
        del keys[key]
    return keys | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return decoder_shapes(config | {"attention_bias": False}, PRE_NORMS)
