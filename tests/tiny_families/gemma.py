"""Gemma 1."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    # As 2B: one head of K and V, and heads wider than hidden / heads.
    "gemma": {"num_key_value_heads": 1, "head_dim": 32},
    "gemma-legacy": {"hidden_act": "gelu", "hidden_activation": None, "rms_norm_eps": 1e-3},
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("gemma", {"rope_theta": 100.0}),)
BROKEN_TENSORS = (("gemma", "input_layernorm.weight"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "gemma",
            "GemmaForCausalLM",
            head_dim=16,
            hidden_act="gelu_pytorch_tanh",
            hidden_activation="gelu_pytorch_tanh",
            rms_norm_eps=1e-6,
            num_key_value_heads=4,
            tie_word_embeddings=True,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return decoder_shapes(config, PRE_NORMS)
