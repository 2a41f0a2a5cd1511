"""Granite 3: four multipliers."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    "granite": {},
    "granite-untied": {
        "tie_word_embeddings": False,
        "attention_multiplier": 0.3,
        "residual_multiplier": 1.0,
        "logits_scaling": 0.5,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "granite-none": {
        "embedding_multiplier": 1.0,
        "logits_scaling": 1.0,
        "num_key_value_heads": 4,
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("granite", {"residual_multiplier": 1.0}),
    ("granite", {"attention_multiplier": 0.25}),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "granite",
            "GraniteForCausalLM",
            hidden_act="silu",
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            mlp_bias=False,
            embedding_multiplier=0.5,
            residual_multiplier=0.6,
            attention_multiplier=0.125,
            logits_scaling=0.25,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return decoder_shapes(config, PRE_NORMS)
