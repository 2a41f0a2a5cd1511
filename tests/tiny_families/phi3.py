"""Phi-3 and Phi-4: Q, K and V in one matrix, gate and up too, longrope."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes, head_dim_of

SHORT = [1.0, 1.05, 1.1, 1.3, 1.5, 1.9, 2.5, 3.25]
LONG = [1.0, 1.2, 1.7, 2.5, 4.0, 8.0, 16.5, 33.0]
"""Divisors of the 8 pairs of a 16-wide head."""

CASES: dict[str, dict[str, Any]] = {
    # A window that the prompt outgrows.
    "phi3": {"sliding_window": 24},
    "phi3-long": {
        "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
        "original_max_position_embeddings": 64,
        "sliding_window": 512,
        "num_key_value_heads": 4,
    },
    # Made for as many positions as it was trained on, so that the short list stays in use.
    "phi3-short": {
        "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
        "original_max_position_embeddings": 512,
    },
    "phi4-mini": {
        "rope_scaling": {"type": "longrope", "short_factor": SHORT[:6], "long_factor": LONG[:6]},
        "original_max_position_embeddings": 64,
        "partial_rotary_factor": 0.75,
        "tie_word_embeddings": True,
        "num_key_value_heads": 1,
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("phi3", {"sliding_window": None}),
    ("phi3-long", {"rope_scaling": None}),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "phi3",
            "Phi3ForCausalLM",
            hidden_act="silu",
            rms_norm_eps=1e-5,
            rope_scaling=None,
            sliding_window=None,
            original_max_position_embeddings=512,
            embd_pdrop=0.0,
            resid_pdrop=0.0,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    shapes = decoder_shapes(config, PRE_NORMS, fused_gate_up=True)
    heads = config["num_attention_heads"] + 2 * config["num_key_value_heads"]
    width = heads * head_dim_of(config)
    fused: Shapes = {}
    for name, shape in shapes.items():
        if ".q_proj." in name:
            fused[name.replace("q_proj", "qkv_proj")] = (width, config["hidden_size"])
        elif ".k_proj." not in name and ".v_proj." not in name:
            fused[name] = shape
    return fused
