"""Tiny Qwen3s: tied embeddings, and heads wider than hidden / heads."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    "qwen3-tied": {"rope_theta": 1000000.0},
    "qwen3-untied": {"tie_word_embeddings": False, "head_dim": 48, "attention_bias": True},
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("qwen3-untied", {"rope_theta": 1000.0}),)
BROKEN_TENSORS = (("qwen3-tied", "q_norm.weight"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "qwen3",
            "Qwen3ForCausalLM",
            head_dim=32,
            hidden_act="silu",
            rms_norm_eps=1e-5,
            rope_scaling=None,
            tie_word_embeddings=True,
            use_sliding_window=False,
            sliding_window=None,
            max_window_layers=overrides.get("num_hidden_layers", 2),
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    head = (config["head_dim"],)
    return decoder_shapes(config, PRE_NORMS | {"self_attn.q_norm": head, "self_attn.k_norm": head})
