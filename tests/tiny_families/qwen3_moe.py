"""Tiny Qwen3s with experts: in every layer, and in some of them."""

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

CASES: dict[str, dict[str, Any]] = {
    "qwen3-moe": {},
    "qwen3-moe-tied": {"tie_word_embeddings": True, "attention_bias": True, "num_experts": 5},
    "qwen3-moe-sparse": {
        "num_hidden_layers": 4,
        "decoder_sparse_step": 2,
        "mlp_only_layers": [1],
        "norm_topk_prob": False,
    },
}
NOT_IN_GGUF = ("qwen3-moe-sparse",)

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("qwen3-moe", {"norm_topk_prob": False}),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "qwen3_moe",
            "Qwen3MoeForCausalLM",
            head_dim=32,
            hidden_act="silu",
            rms_norm_eps=1e-6,
            rope_scaling=None,
            use_sliding_window=False,
            sliding_window=None,
            max_window_layers=overrides.get("num_hidden_layers", 2),
            decoder_sparse_step=1,
            mlp_only_layers=[],
            moe_intermediate_size=32,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            output_router_logits=False,
            router_aux_loss_coef=0.001,
        )
        | overrides
    )


def sparse_layers(config: dict[str, Any]) -> list[int]:
    """Layers with experts."""
    step, dense = config["decoder_sparse_step"], config["mlp_only_layers"]
    layers = range(config["num_hidden_layers"])
    return [layer for layer in layers if layer not in dense and (layer + 1) % step == 0]


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    head = (config["head_dim"],)
    norms = PRE_NORMS | {"self_attn.q_norm": head, "self_attn.k_norm": head}
    width, count = config["moe_intermediate_size"], config["num_experts"]
    experts = expert_shapes("mlp", config["hidden_size"], width, count)
    return with_experts(decoder_shapes(config, norms), sparse_layers(config), experts)
