"""SmolLM3: every fourth layer without rotation."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    "smollm3": {"num_hidden_layers": 5},
    "smollm3-llama3": {
        "num_hidden_layers": 4,
        "no_rope_layers": [1, 1, 1, 0],
        "tie_word_embeddings": False,
        "attention_bias": True,
        "mlp_bias": True,
        "rope_scaling": {
            "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
    },
    "smollm3-other-layers": {
        "no_rope_layers": [0, 1, 0], "num_hidden_layers": 3,
        "use_sliding_window": True, "sliding_window": 24,
    },
    "smollm3-interval": {"no_rope_layer_interval": 2, "num_hidden_layers": 3},
}  # fmt: skip

NOT_IN_GGUF = ("smollm3-other-layers", "smollm3-interval")

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("smollm3-interval", {"no_rope_layer_interval": 3}),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "smollm3",
            "SmolLM3ForCausalLM",
            hidden_act="silu",
            rms_norm_eps=1e-6,
            rope_theta=2000000.0,
            tie_word_embeddings=True,
            mlp_bias=False,
            no_rope_layer_interval=4,
            use_sliding_window=False,
            sliding_window=None,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return decoder_shapes(config, PRE_NORMS)
