"""OLMo 2."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import Shapes, base_config, decoder_shapes, head_dim_of

CASES: dict[str, dict[str, Any]] = {
    "olmo2": {"rope_theta": 500000.0},
    "olmo2-grouped": {"num_key_value_heads": 1, "tie_word_embeddings": True},
    "olmo2-bias": {"attention_bias": True, "num_key_value_heads": 4, "rms_norm_eps": 1e-3},
}

BROKEN_TENSORS = (
    ("olmo2", "q_norm.weight"),
    ("olmo2", "post_feedforward_layernorm.weight"),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config("olmo2", "Olmo2ForCausalLM", hidden_act="silu", rms_norm_eps=1e-6) | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    head_dim = head_dim_of(config)
    norms: dict[str, tuple[int, ...] | None] = {
        "self_attn.q_norm": (config["num_attention_heads"] * head_dim,),
        "self_attn.k_norm": (config["num_key_value_heads"] * head_dim,),
        "post_attention_layernorm": None,
        "post_feedforward_layernorm": None,
    }
    return decoder_shapes(config, norms)
