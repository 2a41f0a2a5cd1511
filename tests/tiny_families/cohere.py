"""Cohere Command-R and Command-R+."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import Shapes, base_config, decoder_shapes, head_dim_of

CASES: dict[str, dict[str, Any]] = {
    "cohere": {},
    "cohere-head-norms": {"use_qk_norm": True, "layer_norm_eps": 1e-3, "rope_theta": 75000.0},
    "cohere-bias": {
        "attention_bias": True,
        "num_key_value_heads": 4,
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("cohere", {"logit_scale": 0.25}),)
BROKEN_TENSORS = (("cohere-head-norms", "k_norm.weight"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "cohere",
            "CohereForCausalLM",
            hidden_act="silu",
            layer_norm_eps=1e-5,
            logit_scale=0.5,
            use_qk_norm=False,
            tie_word_embeddings=True,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    norms: dict[str, tuple[int, ...] | None] = {"input_layernorm": None}
    if config.get("use_qk_norm"):
        for name, key in (("q_norm", "num_attention_heads"), ("k_norm", "num_key_value_heads")):
            norms[f"self_attn.{name}"] = (config[key], head_dim_of(config))
    return decoder_shapes(config, norms)
