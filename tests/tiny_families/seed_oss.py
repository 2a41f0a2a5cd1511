"""Seed-OSS."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    "seed-oss": {"head_dim": 32},
    "seed-oss-biases": {
        "attention_out_bias": True,
        "mlp_bias": True,
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("seed-oss", {"rope_theta": 1000.0}),)
BROKEN_TENSORS = (
    ("seed-oss", "q_proj.bias"),
    ("seed-oss-biases", "o_proj.bias"),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "seed_oss",
            "SeedOssForCausalLM",
            head_dim=16,
            hidden_act="silu",
            rms_norm_eps=1e-6,
            rope_theta=10000000.0,
            rope_scaling={"rope_type": "default"},
            attention_bias=True,
            attention_out_bias=False,
            mlp_bias=False,
            residual_dropout=0.1,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return decoder_shapes(config, PRE_NORMS, output_bias=config["attention_out_bias"])
