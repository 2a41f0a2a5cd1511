"""Gemma 3, text."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import Shapes, base_config, decoder_shapes, head_dim_of
from tests.tiny_families.gemma2 import NORMS

CASES: dict[str, dict[str, Any]] = {
    # Seven layers: five with a window, a full one with its own rope, one with a window again.
    "gemma3-windows": {
        "num_hidden_layers": 7,
        "sliding_window": 24,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "gemma3-linear": {
        "sliding_window_pattern": 2,
        "rope_scaling": {"rope_type": "linear", "factor": 3.0},
        "final_logit_softcapping": 5.0,
        "num_key_value_heads": 1,
    },
    "gemma3-scalar": {"query_pre_attn_scalar": 9, "attention_bias": True},
    "gemma3-types": {
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "num_hidden_layers": 3,
        # As transformers 5 writes both ropes.
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 20000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        },
        "rope_theta": None,
        "rope_local_base_freq": None,
    },
}

NOT_IN_GGUF = ("gemma3-scalar",)
"""Cases that llama.cpp, and so a GGUF file, has no word for."""

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gemma3-windows", {"sliding_window": 512}),
    ("gemma3-windows", {"rope_local_base_freq": 1000000.0}),
)
BROKEN_TENSORS = (("gemma3-linear", "q_norm.weight"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "gemma3_text",
            "Gemma3ForCausalLM",
            head_dim=16,
            hidden_activation="gelu_pytorch_tanh",
            rms_norm_eps=1e-6,
            query_pre_attn_scalar=16,
            sliding_window=32,
            rope_theta=1000000.0,
            rope_local_base_freq=10000.0,
            tie_word_embeddings=True,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    heads = {"self_attn.q_norm": (head_dim_of(config),), "self_attn.k_norm": (head_dim_of(config),)}
    return decoder_shapes(config, dict.fromkeys(NORMS) | heads)
