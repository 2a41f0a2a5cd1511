"""The text of Qwen3-VL with experts: in every layer, and in some of them."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import (
    PRE_NORMS,
    Shapes,
    base_config,
    decoder_shapes,
    expert_shapes,
    with_experts,
)
from tests.tiny_families.qwen3_moe import sparse_layers
from tests.tiny_families.qwen3_vl_text import AXES, outer_config

CASES: dict[str, dict[str, Any]] = {
    "qwen3-vl-moe": {"rope_scaling": AXES},
    "qwen3-vl-moe-sparse": {
        "num_hidden_layers": 4,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [1],
        "num_experts": 5,
    },
}
NOT_IN_GGUF = ("qwen3-vl-moe-sparse",)
BROKEN_RULES = (
    ("qwen3-vl-moe", {"num_experts_per_tok": 2}),
    ("qwen3-vl-moe-sparse", {"rope_theta": 10000.0}),
)

OUTER = outer_config("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration")


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "qwen3_vl_moe_text",
            "Qwen3VLMoeForConditionalGeneration",
            head_dim=32,
            hidden_act="silu",
            rms_norm_eps=1e-6,
            rope_theta=5000000,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            # Neither H nor half of it: transformers turns a stack where its dimensions differ.
            moe_intermediate_size=96,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=True,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor, experts one by one: folders hold all of a layer, turned."""
    head = (config["head_dim"],)
    norms = PRE_NORMS | {"self_attn.q_norm": head, "self_attn.k_norm": head}
    width, count = config["moe_intermediate_size"], config["num_experts"]
    experts = expert_shapes("mlp", config["hidden_size"], width, count)
    return with_experts(decoder_shapes(config, norms), sparse_layers(config), experts)
