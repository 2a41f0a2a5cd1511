"""GLM-4-9B in Hugging Face's form."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    "glm": {"num_key_value_heads": 1},
    "glm-head-dim": {"head_dim": 32, "rope_theta": 50000.0},
    "glm-partial": {"partial_rotary_factor": 0.25, "attention_bias": False},
}

NOT_IN_GGUF = ("glm-head-dim",)
"""Cases that llama.cpp, and so a GGUF file, has no word for."""

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("glm", {"partial_rotary_factor": 1.0}),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "glm",
            "GlmForCausalLM",
            head_dim=16,
            hidden_act="silu",
            rms_norm_eps=1.5625e-7,
            partial_rotary_factor=0.5,
            attention_bias=True,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    norms = dict.fromkeys(("input_layernorm", "post_attention_layernorm"))
    return decoder_shapes(config, norms, fused_gate_up=True, output_bias=False)
