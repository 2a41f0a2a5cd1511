"""Gemma 2."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import Shapes, base_config, decoder_shapes

NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)

CASES: dict[str, dict[str, Any]] = {
    # A window that the prompt outgrows, at a caps' scale that bends what is capped.
    "gemma2-windows": {"sliding_window": 24, "num_hidden_layers": 3},
    "gemma2-caps": {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 1.5},
    "gemma2-no-caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    "gemma2-scalar": {"query_pre_attn_scalar": 9, "hidden_act": "gelu_pytorch_tanh"},
    # Heads wider than hidden / heads, and windows on other layers than usual.
    "gemma2-types": {
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "num_key_value_heads": 1,
        "layer_types": ["full_attention", "sliding_attention"],
        "sliding_window": 40,
    },
}

NOT_IN_GGUF = ("gemma2-no-caps", "gemma2-scalar")
"""Cases that llama.cpp, and so a GGUF file, has no word for."""

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gemma2-windows", {"sliding_window": 512}),
    ("gemma2-caps", {"attn_logit_softcapping": None}),
    ("gemma2-scalar", {"query_pre_attn_scalar": 16}),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "gemma2",
            "Gemma2ForCausalLM",
            head_dim=16,
            hidden_activation="gelu_pytorch_tanh",
            rms_norm_eps=1e-5,
            query_pre_attn_scalar=16,
            sliding_window=64,
            attn_logit_softcapping=50.0,
            final_logit_softcapping=30.0,
            tie_word_embeddings=True,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return decoder_shapes(config, dict.fromkeys(NORMS))
