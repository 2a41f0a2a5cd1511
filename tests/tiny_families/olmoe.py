"""Tiny OLMoEs: with norms of Q and K as wide as they are."""

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
    "olmoe": {},
    "olmoe-normed": {"norm_topk_prob": True, "num_key_value_heads": 4},
}
NOT_IN_GGUF = ("olmoe-normed",)

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("olmoe", {"norm_topk_prob": True}),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "olmoe",
            "OlmoeForCausalLM",
            intermediate_size=32,
            hidden_act="silu",
            rms_norm_eps=1e-5,
            clip_qkv=None,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=False,
            output_router_logits=False,
            router_aux_loss_coef=0.01,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    hidden = config["hidden_size"]
    kv_width = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    norms = PRE_NORMS | {"self_attn.q_norm": (hidden,), "self_attn.k_norm": (kv_width,)}
    experts = expert_shapes("mlp", hidden, config["intermediate_size"], config["num_experts"])
    layers = range(config["num_hidden_layers"])
    return with_experts(decoder_shapes(config, norms), layers, experts)
