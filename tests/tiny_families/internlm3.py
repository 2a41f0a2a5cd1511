"""InternLM 3, which transformers computes as a Llama."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    "internlm3": {"head_dim": 32},
    "internlm3-biases": {"qkv_bias": True, "bias": True, "tie_word_embeddings": True},
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("internlm3", {"rope_theta": 100.0}),)
BROKEN_TENSORS = (
    ("internlm3-biases", "o_proj.bias"),
    ("internlm3-biases", "down_proj.bias"),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = base_config(
        "internlm3",
        "InternLM3ForCausalLM",
        head_dim=16,
        hidden_act="silu",
        rms_norm_eps=1e-5,
        rope_theta=50000000.0,
        qkv_bias=False,
        bias=False,
    )
    del keys["attention_bias"]
    return keys | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    biases = {"attention_bias": config["qkv_bias"], "mlp_bias": config["bias"]}
    return decoder_shapes(config | biases, PRE_NORMS)
