"""Cohere Command-R7B."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    # Three layers with a window and rotation, one without either, one with both again.
    "cohere2": {"num_hidden_layers": 5, "sliding_window": 24},
    "cohere2-types": {
        "layer_types": ["full_attention", "sliding_attention"],
        "num_key_value_heads": 1,
        "sliding_window": 40,
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("cohere2", {"sliding_window": 512}),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "cohere2",
            "Cohere2ForCausalLM",
            hidden_act="silu",
            layer_norm_eps=1e-5,
            logit_scale=0.25,
            sliding_window=32,
            rope_theta=50000.0,
            rotary_pct=1.0,
            tie_word_embeddings=True,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return decoder_shapes(config, {"input_layernorm": None})
