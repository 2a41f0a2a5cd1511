"""Llama 4's text: chunks, layers without rope, queries that grow with the position, experts."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import (
    PRE_NORMS,
    Shapes,
    base_config,
    decoder_shapes,
    mlp_shapes,
    with_experts,
)

LLAMA3 = {
    "rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
SHORT = {"attention_chunk_size": 24, "floor_scale": 16}

CASES: dict[str, dict[str, Any]] = {
    "llama4": {**SHORT, "num_hidden_layers": 5, "rope_scaling": LLAMA3},
    "llama4-as-gguf": {
        "num_hidden_layers": 4,
        "interleave_moe_layer_step": 2,
        "num_experts_per_tok": 2,
        "rope_scaling": {**LLAMA3, "original_max_position_embeddings": 8192},
    },
    "llama4-dense-layers": {
        **SHORT,
        "num_hidden_layers": 3,
        "no_rope_layers": [0, 1, 1],
        "layer_types": ["full_attention", "chunked_attention", "full_attention"],
        "moe_layers": [1],
        "use_qk_norm": False,
        "tie_word_embeddings": True,
        "num_key_value_heads": 1,
    },
    "llama4-untuned": {
        "no_rope_layers": [1, 1],
        "layer_types": ["full_attention"] * 2,
        "attention_bias": True,
        "num_local_experts": 5,
    },
}  # fmt: skip

NOT_IN_GGUF = ("llama4", "llama4-dense-layers")
BROKEN_RULES = (
    ("llama4", {"attention_chunk_size": 512}),
    ("llama4", {"attn_temperature_tuning": False}),
    ("llama4", {"attn_scale": 0.5}),
    ("llama4", {"use_qk_norm": False}),
    ("llama4", {"no_rope_layer_interval": 5}),
    ("llama4", {"rope_scaling": None}),
    ("llama4-as-gguf", {"num_experts_per_tok": 1}),
)
BROKEN_TENSORS = (("llama4", "shared_expert.up_proj.weight"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "llama4_text",
            "Llama4ForCausalLM",
            head_dim=32,
            hidden_act="silu",
            rms_norm_eps=1e-5,
            rope_theta=500000.0,
            rope_scaling=None,
            intermediate_size=32,
            intermediate_size_mlp=96,
            attention_chunk_size=8192,
            interleave_moe_layer_step=1,
            num_local_experts=6,
            num_experts_per_tok=1,
            use_qk_norm=True,
            output_router_logits=False,
            router_aux_loss_coef=0.001,
        )
        | overrides
    )


def sparse_layers(config: dict[str, Any]) -> list[int]:
    """Layers with experts."""
    step = config["interleave_moe_layer_step"]
    usual = [*range(step - 1, config["num_hidden_layers"], step)]
    listed: list[int] = config.get("moe_layers", usual)
    return listed


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor, experts one by one: folders hold all of a layer, turned."""
    hidden, width = config["hidden_size"], config["intermediate_size"]
    count = config["num_local_experts"]
    experts: Shapes = {"feed_forward.router.weight": (count, hidden)}
    for name in ("shared_expert", *(f"experts.{number}" for number in range(count))):
        experts |= mlp_shapes(f"feed_forward.{name}", hidden, width)
    dense = decoder_shapes(
        {**config, "intermediate_size": config["intermediate_size_mlp"]}, PRE_NORMS
    )
    found = with_experts(dense, sparse_layers(config), experts)
    return {name.replace(".mlp.", ".feed_forward."): shape for name, shape in found.items()}
