"""MiMo-7B, which transformers has no class for: it computes the same weights as a Qwen2."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

SAME_AS = "qwen2"
ORACLE = "transformers (as a Qwen2)"

CASES: dict[str, dict[str, Any]] = {
    "mimo": {},
    "mimo-tied": {
        "tie_word_embeddings": True,
        "num_key_value_heads": 1,
        "num_nextn_predict_layers": 0,
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("mimo", {"rope_theta": 10000.0}),)
BROKEN_TENSORS = (("mimo", "_proj.bias"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "mimo",
            "MiMoForCausalLM",
            head_dim=16,
            hidden_act="silu",
            rms_norm_eps=1e-5,
            rope_theta=640000.0,
            attention_bias=True,
            use_sliding_window=False,
            sliding_window=32768,
            max_window_layers=32,
            use_mrope=False,
            num_nextn_predict_layers=1,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor, but for layers that predict further tokens."""
    return decoder_shapes(config, PRE_NORMS, output_bias=False)
