"""Tiny Step-3.7s: gates of heads, windows with more heads of Q, limits of gates in some layers."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, mlp_shapes

FULL, WINDOWED = "full_attention", "sliding_attention"
ROPES = {
    FULL: {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5},
    WINDOWED: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0},
}
LLAMA3 = {
    "rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 8.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip

CASES: dict[str, dict[str, Any]] = {
    "step3p7": {},
    # In the words of the published configs.
    "step3p7-llama3": {
        "layer_types": [FULL, WINDOWED, FULL, WINDOWED],
        "num_nextn_predict_layers": 1,
        "mlp_layer_types": None,
        "moe_layers_enum": "1,2,3",
        "num_sliding_attention_heads": None,
        "attention_other_setting": {
            "attention_type": WINDOWED, "num_attention_heads": 8, "num_attention_groups": 2,
            "head_dim": 32, "true_head_dim": 32,
        },
        "rope_parameters": None,
        "rope_theta": [5e6, 1e4, 5e6, 1e4],
        "partial_rotary_factors": [0.5, 1.0, 0.5, 1.0],
        "rope_scaling": LLAMA3,
        "swiglu_limits": [0.0, 1.0, 0.0, 0.0],
        "swiglu_limits_shared": [0.0, 0.0, 1.5, 0.0],
    },
    "step3p7-plain": {
        "layer_types": [FULL, FULL, FULL],
        "rope_parameters": {FULL: {"rope_type": "default", "rope_theta": 1e6}},
        "swiglu_limits": None,
        "swiglu_limits_shared": None,
        "query_pre_attn_scalar": 48,
    },
}  # fmt: skip
NOT_IN_GGUF = ("step3p7-plain",)

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("step3p7", {"swiglu_limits": None}),
    ("step3p7", {"swiglu_limits_shared": None}),
    ("step3p7", {"sliding_window": 25}),
    ("step3p7", {"rope_parameters": {**ROPES, FULL: ROPES[WINDOWED]}}),
    ("step3p7", {"moe_router_scaling_factor": 1.0}),
    ("step3p7-llama3", {"rope_scaling": None}),
    ("step3p7-plain", {"query_pre_attn_scalar": None}),
)
BROKEN_TENSORS = (
    ("step3p7", "moe.router_bias"),
    ("step3p7", "g_proj.weight"),
    ("step3p7", "share_expert.up_proj.weight"),
)

OUTER = {
    "architectures": ["Step3p7ForConditionalGeneration"],
    "model_type": "step3p7",
    "image_token_id": 280,
    "projector_bias": False,
    "vision_config": {
        "hidden_size": 16,
        "image_size": 8,
        "max_position_embeddings": 16,
        "mlp_ratio": 1.0,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "patch_size": 2,
    },
}


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = base_config(
        "step3p7",
        "Step3p5ForCausalLM",
        num_hidden_layers=3,
        num_sliding_attention_heads=8,
        head_dim=32,
        pad_token_id=257,
        hidden_act="silu",
        rms_norm_eps=1e-5,
        layer_types=[FULL, WINDOWED, WINDOWED],
        mlp_layer_types=["dense", "sparse", "sparse"],
        sliding_window=24,
        rope_parameters=ROPES,
        moe_intermediate_size=32,
        n_routed_experts=8,
        num_experts_per_tok=2,
        share_expert_dim=32,
        moe_router_scaling_factor=3.0,
        num_nextn_predict_layers=0,
        swiglu_limits=[None, 1.0, 1.5],
        swiglu_limits_shared=[1.0, None, 1.5],
    )
    del keys["rope_theta"]
    return keys | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor, but for layers that predict further tokens."""
    hidden, head_dim = config["hidden_size"], config["head_dim"]
    width, count = config["moe_intermediate_size"], config["n_routed_experts"]
    other = config.get("attention_other_setting") or {}
    local = config["num_sliding_attention_heads"] or other.get("num_attention_heads")
    kv_width = config["num_key_value_heads"] * head_dim
    found: Shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        windowed = config["layer_types"][layer] == WINDOWED
        heads = local if windowed else config["num_attention_heads"]
        at = f"model.layers.{layer}"
        found |= {f"{at}.{name}.weight": (hidden,) for name in PRE_NORMS}
        found |= {
            f"{at}.self_attn.q_proj.weight": (heads * head_dim, hidden),
            f"{at}.self_attn.k_proj.weight": (kv_width, hidden),
            f"{at}.self_attn.v_proj.weight": (kv_width, hidden),
            f"{at}.self_attn.o_proj.weight": (hidden, heads * head_dim),
            f"{at}.self_attn.g_proj.weight": (heads, hidden),
            f"{at}.self_attn.q_norm.weight": (head_dim,),
            f"{at}.self_attn.k_norm.weight": (head_dim,),
        }
        if layer == 0:
            found |= mlp_shapes(f"{at}.mlp", hidden, config["intermediate_size"])
            continue
        found |= mlp_shapes(f"{at}.share_expert", hidden, config["share_expert_dim"])
        found[f"{at}.moe.gate.weight"] = (count, hidden)
        found[f"{at}.moe.router_bias"] = (count,)
        for number in range(count):
            found |= mlp_shapes(f"{at}.moe.experts.{number}", hidden, width)
    return found
