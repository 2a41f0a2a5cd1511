"""ERNIE 4.5, dense: neighbouring pairs are rotated, heads have a width of their own."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    "ernie": {},
    "ernie-biases": {"use_bias": True, "tie_word_embeddings": False, "head_dim": None},
}
NOT_IN_GGUF = ("ernie-biases",)

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("ernie", {"rope_theta": 10000.0}),)
BROKEN_TENSORS = (("ernie-biases", "o_proj.bias"), ("ernie-biases", "down_proj.bias"))


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = (
        base_config(
            "ernie4_5",
            "Ernie4_5ForCausalLM",
            head_dim=32,
            hidden_act="silu",
            rms_norm_eps=1e-5,
            rope_theta=500000.0,
            tie_word_embeddings=True,
            use_bias=False,
        )
        | overrides
    )
    del keys["attention_bias"]
    return keys


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    biases = {"attention_bias": config["use_bias"], "mlp_bias": config["use_bias"]}
    return decoder_shapes({**config, **biases}, PRE_NORMS)
