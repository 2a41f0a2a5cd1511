"""Tiny Gemma 4s, text: with experts, with inputs of the layers, with K and V that layers share."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import Shapes, base_config, mlp_shapes

WINDOWS = ["sliding_attention", "sliding_attention", "full_attention"]
ROPES = {
    "full_attention": {
        "rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}  # fmt: skip

CASES: dict[str, dict[str, Any]] = {
    "gemma4": {},
    "gemma4-experts": {
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
        "enable_moe_block": True,
        "num_experts": 6,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
        "final_logit_softcapping": 30.0,
    },
    "gemma4-inputs": {
        "num_hidden_layers": 5,
        "layer_types": [*WINDOWS, "sliding_attention", "full_attention"],
        "hidden_size_per_layer_input": 32,
        "num_kv_shared_layers": 2,
        "use_double_wide_mlp": True,
        "num_key_value_heads": 1,
    },
}

SPREAD = {"router.scale": 30.0, "layer_scalar": 0.5}
"""A router whose scores differ, and layers that do not outgrow each other."""

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gemma4", {"sliding_window": 512}),
    ("gemma4", {"rope_parameters": {**ROPES, "full_attention": ROPES["sliding_attention"]}}),
    ("gemma4-experts", {"top_k_experts": 1}),
    ("gemma4-experts", {"final_logit_softcapping": None}),
)
BROKEN_TENSORS = (
    ("gemma4-experts", "router.scale"),
    ("gemma4-inputs", "embed_tokens_per_layer.weight"),
    ("gemma4-inputs", "per_layer_projection_norm.weight"),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = base_config(
        "gemma4_text",
        "Gemma4ForCausalLM",
        num_hidden_layers=3,
        head_dim=16,
        global_head_dim=32,
        num_global_key_value_heads=None,
        attention_k_eq_v=False,
        hidden_activation="gelu_pytorch_tanh",
        rms_norm_eps=1e-6,
        layer_types=WINDOWS,
        sliding_window=24,
        rope_parameters=ROPES,
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=288,
        num_kv_shared_layers=0,
        use_double_wide_mlp=False,
        enable_moe_block=False,
        final_logit_softcapping=None,
        use_bidirectional_attention="vision",
        tie_word_embeddings=True,
    )
    del keys["rope_theta"]
    return keys | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor, experts one by one: folders hold all of a layer."""
    hidden, layers = config["hidden_size"], config["num_hidden_layers"]
    found: Shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    inputs = config["hidden_size_per_layer_input"]
    if inputs:
        found["model.embed_tokens_per_layer.weight"] = (config["vocab_size"], layers * inputs)
        found["model.per_layer_model_projection.weight"] = (layers * inputs, hidden)
        found["model.per_layer_projection_norm.weight"] = (inputs,)
    for layer in range(layers):
        for name, shape in _layer_shapes(config, layer).items():
            found[f"model.layers.{layer}.{name}"] = shape
    return found


def _layer_shapes(config: dict[str, Any], layer: int) -> Shapes:
    hidden, full = config["hidden_size"], config["layer_types"][layer] == "full_attention"
    shared = layer >= config["num_hidden_layers"] - config["num_kv_shared_layers"]
    head_dim = config["global_head_dim"] if full else config["head_dim"]
    no_values = full and config["attention_k_eq_v"]
    kv_heads = config["num_key_value_heads"]
    if no_values:
        kv_heads = config["num_global_key_value_heads"] or kv_heads
    width = config["num_attention_heads"] * head_dim
    norms = ["input_layernorm", "post_attention_layernorm"]
    norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    found: Shapes = {
        "self_attn.q_proj.weight": (width, hidden),
        "self_attn.o_proj.weight": (hidden, width),
        "self_attn.q_norm.weight": (head_dim,),
        "layer_scalar": (1,),
    }
    if not shared:
        found["self_attn.k_proj.weight"] = (kv_heads * head_dim, hidden)
        found["self_attn.k_norm.weight"] = (head_dim,)
        if not no_values:
            found["self_attn.v_proj.weight"] = (kv_heads * head_dim, hidden)
    wide = 2 if shared and config["use_double_wide_mlp"] else 1
    found |= mlp_shapes("mlp", hidden, wide * config["intermediate_size"])
    if config["enable_moe_block"]:
        count = config["num_experts"]
        found |= {
            "router.proj.weight": (count, hidden),
            "router.scale": (hidden,),
            "router.per_expert_scale": (count,),
        }
        for number in range(count):
            found |= mlp_shapes(f"experts.{number}", hidden, config["moe_intermediate_size"])
        norms += ["pre_feedforward_layernorm_2"]
        norms += [f"post_feedforward_layernorm_{number}" for number in (1, 2)]
    if inputs := config["hidden_size_per_layer_input"]:
        found["per_layer_input_gate.weight"] = (inputs, hidden)
        found["per_layer_projection.weight"] = (hidden, inputs)
        norms += ["post_per_layer_input_norm"]
    return found | {f"{name}.weight": (hidden,) for name in norms}
