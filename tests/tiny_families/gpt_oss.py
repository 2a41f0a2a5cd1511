"""gpt-oss: experts with biases and a clamped activation, sinks, windows in each other layer."""

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

YARN = {
    "rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 64,
}  # fmt: skip

CASES: dict[str, dict[str, Any]] = {
    "gpt-oss": {},
    "gpt-oss-types": {
        "num_hidden_layers": 3,
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
        "sliding_window": 40,
        "num_local_experts": 7,
        "num_experts_per_tok": 4,
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
    },
}

SPREAD = {"gate_proj.weight": 3.0, "up_proj.weight": 3.0}
"""Wide enough for the activation's limit of 7 to cut a tenth of its inputs."""

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpt-oss", {"num_experts_per_tok": 2}),
    ("gpt-oss", {"sliding_window": 512}),
    ("gpt-oss", {"rope_scaling": {**YARN, "truncate": True}}),
)
BROKEN_TENSORS = (
    ("gpt-oss", "mlp.router.bias"),
    ("gpt-oss", "gate_proj.bias"),
    ("gpt-oss", "self_attn.o_proj.bias"),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        base_config(
            "gpt_oss",
            "GptOssForCausalLM",
            intermediate_size=32,
            head_dim=32,
            attention_bias=True,
            hidden_act="silu",
            rms_norm_eps=1e-5,
            rope_theta=150000.0,
            rope_scaling=YARN,
            sliding_window=24,
            swiglu_limit=7.0,
            num_local_experts=6,
            num_experts_per_tok=3,
            router_aux_loss_coef=0.9,
            output_router_logits=False,
        )
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor, experts one by one: folders hold all of a layer, turned."""
    hidden, width = config["hidden_size"], config["intermediate_size"]
    count, heads = config["num_local_experts"], config["num_attention_heads"]
    experts: Shapes = {
        "self_attn.sinks": (heads,),
        "mlp.router.weight": (count, hidden),
        "mlp.router.bias": (count,),
    }
    for number in range(count):
        single = mlp_shapes(f"mlp.experts.{number}", hidden, width)
        experts |= single
        experts |= {
            f"{name.removesuffix('weight')}bias": shape[:1] for name, shape in single.items()
        }
    layers = range(config["num_hidden_layers"])
    return with_experts(decoder_shapes(config, PRE_NORMS), layers, experts)
