"""InternLM 2, which transformers has no class for: it computes the same weights as a Llama."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

SAME_AS = "llama"
ORACLE = "transformers (as a Llama)"

CASES: dict[str, dict[str, Any]] = {
    "internlm2": {},
    "internlm2-linear": {
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-3,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("internlm2", {"rope_theta": 100.0}),
    ("internlm2-linear", {"rope_scaling": None}),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = base_config(
        "internlm2",
        "InternLM2ForCausalLM",
        hidden_act="silu",
        rms_norm_eps=1e-5,
        rope_theta=1000000.0,
        bias=False,
        attn_implementation="eager",
    )
    del keys["attention_bias"]
    return keys | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor, by canonical name."""
    return decoder_shapes(config | {"attention_bias": False}, PRE_NORMS)
