"""Mistral 7B 0.1 (a window in every layer), 0.3 (none) and Nemo (wide heads)."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    # The prompt outgrows the window, and so does each step.
    "mistral-window": {"sliding_window": 24},
    "mistral-no-window": {"sliding_window": None, "rope_theta": 1000000.0},
    "mistral-nemo": {"sliding_window": None, "head_dim": 32, "num_key_value_heads": 1},
    "mistral-yarn": {
        "sliding_window": 80,
        "tie_word_embeddings": True,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 16.0,
        },
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mistral-window", {"sliding_window": None}),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = base_config(
        "mistral", "MistralForCausalLM", hidden_act="silu", rms_norm_eps=1e-5, sliding_window=4096
    )
    del keys["attention_bias"]
    return keys | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return decoder_shapes(config | {"attention_bias": False}, PRE_NORMS)
