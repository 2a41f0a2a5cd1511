"""Hunyuan's dense sizes: norms of heads behind the rotation, a base that alpha has grown."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

ALPHA = {
    "type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1,
    "mscale": 1.0, "mscale_all_dim": 1.0,
}  # fmt: skip

CASES: dict[str, dict[str, Any]] = {
    "hunyuan": {"rope_scaling": ALPHA},
    "hunyuan-tied": {"tie_word_embeddings": True, "attention_bias": True, "rope_scaling": None},
}

BROKEN_RULES = (("hunyuan", {"rope_scaling": None}),)
BROKEN_TENSORS = (("hunyuan", "query_layernorm.weight"), ("hunyuan-tied", "k_proj.bias"))


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "hunyuan_v1_dense",
            "HunYuanDenseV1ForCausalLM",
            head_dim=32,
            hidden_act="silu",
            rms_norm_eps=1e-5,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    head = (config["head_dim"],)
    norms = {"self_attn.query_layernorm": head, "self_attn.key_layernorm": head}
    return decoder_shapes(config, PRE_NORMS | norms)
