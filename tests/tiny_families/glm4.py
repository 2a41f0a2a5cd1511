"""GLM-4-0414."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import Shapes, base_config, decoder_shapes

NORMS = (
    "input_layernorm",
    "post_self_attn_layernorm",
    "post_attention_layernorm",
    "post_mlp_layernorm",
)

CASES: dict[str, dict[str, Any]] = {
    "glm4": {"num_key_value_heads": 1},
    "glm4-no-bias": {"attention_bias": False, "head_dim": 32, "tie_word_embeddings": True},
    "glm4-whole": {"partial_rotary_factor": 1.0, "rope_theta": 50000.0},
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("glm4", {"partial_rotary_factor": 1.0}),)
BROKEN_TENSORS = (("glm4", "post_mlp_layernorm.weight"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "glm4",
            "Glm4ForCausalLM",
            head_dim=16,
            hidden_act="silu",
            rms_norm_eps=1e-5,
            partial_rotary_factor=0.5,
            attention_bias=True,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return decoder_shapes(config, dict.fromkeys(NORMS), fused_gate_up=True, output_bias=False)
