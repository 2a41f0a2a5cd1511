"""Tiny Llamas."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

LLAMA3_SCALING = {
    # Original length 64 puts waves of a 16-wide head into all three ranges.
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

CASES: dict[str, dict[str, Any]] = {
    "llama-tied": {"tie_word_embeddings": True},
    "llama-untied": {"num_key_value_heads": 1, "rope_theta": 500000.0, "num_hidden_layers": 3},
    "llama-bias": {"num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True},
    "llama-head-dim": {"head_dim": 32},
    "llama-llama3": {"rope_scaling": LLAMA3_SCALING},
    "llama-linear": {"rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama-yarn": {
        "rope_scaling": {
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64,
            "mscale": 0.7, "mscale_all_dim": 1.4,
        },
    },
    # Shorter than the prompt, so that transformers takes the long factors as well.
    "llama-longrope": {
        "rope_scaling": {
            "rope_type": "longrope", "original_max_position_embeddings": 32,
            "short_factor": [1.0] * 8, "long_factor": [1.0 + 0.5 * i for i in range(8)],
        },
    },
}  # fmt: skip

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("llama-llama3", {"rope_scaling": None}),
    ("llama-linear", {"rope_scaling": None}),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = (
        base_config(
            "llama",
            "LlamaForCausalLM",
            hidden_act="silu",
            rms_norm_eps=1e-5,
            rope_scaling=None,
            mlp_bias=False,
            pretraining_tp=1,
        )
        | overrides
    )
    return {"head_dim": keys["hidden_size"] // keys["num_attention_heads"]} | keys


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return decoder_shapes(config, PRE_NORMS)
