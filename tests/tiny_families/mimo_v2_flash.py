"""Tiny MiMo-V2-Flashes: values narrower than keys, and sinks in layers with a window."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, expert_shapes, mlp_shapes

FULL, WINDOWED = "full_attention", "sliding_attention"
ROPES = {
    FULL: {"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 1 / 3},
    WINDOWED: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1 / 3},
}

CASES: dict[str, dict[str, Any]] = {
    "mimo-v2-flash": {},
    "mimo-v2-flash-types": {
        "layer_types": [WINDOWED, FULL, WINDOWED],
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "sliding_window_size": 39,
        "attention_value_scale": None,
        "tie_word_embeddings": True,
        "rope_parameters": {**ROPES, FULL: {"rope_type": "default", "rope_theta": 1e6}},
    },
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mimo-v2-flash", {"attention_value_scale": None}),
    ("mimo-v2-flash", {"sliding_window": 25}),
    ("mimo-v2-flash", {"norm_topk_prob": False}),
    ("mimo-v2-flash", {"rope_parameters": {**ROPES, WINDOWED: ROPES[FULL]}}),
)
BROKEN_TENSORS = (
    ("mimo-v2-flash", "attention_sink_bias"),
    ("mimo-v2-flash", "e_score_correction_bias"),
)
SPREAD = {"attention_sink_bias": 2.0}


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = base_config(
        "mimo_v2_flash",
        "MiMoV2FlashForCausalLM",
        num_hidden_layers=3,
        num_key_value_heads=1,
        head_dim=48,
        v_head_dim=32,
        hidden_act="silu",
        rms_norm_eps=1e-5,
        layer_types=[FULL, WINDOWED, WINDOWED],
        mlp_layer_types=["dense", "sparse", "sparse"],
        sliding_window=24,
        rope_parameters=ROPES,
        attention_value_scale=0.707,
        moe_intermediate_size=32,
        n_routed_experts=8,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        n_group=1,
        topk_group=1,
        routed_scaling_factor=None,
    )
    del keys["rope_theta"]
    return keys | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor, but for layers that predict further tokens."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    width, count = config["moe_intermediate_size"], config["n_routed_experts"]
    key_dim, value_dim = config["head_dim"], config["v_head_dim"]
    found: Shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        windowed = config["layer_types"][layer] == WINDOWED
        kv_heads = config["num_key_value_heads"] * (2 if windowed else 1)
        at = f"model.layers.{layer}"
        found |= {f"{at}.{name}.weight": (hidden,) for name in PRE_NORMS}
        found |= {
            f"{at}.self_attn.q_proj.weight": (heads * key_dim, hidden),
            f"{at}.self_attn.k_proj.weight": (kv_heads * key_dim, hidden),
            f"{at}.self_attn.v_proj.weight": (kv_heads * value_dim, hidden),
            f"{at}.self_attn.o_proj.weight": (hidden, heads * value_dim),
        }
        if windowed:
            found[f"{at}.self_attn.attention_sink_bias"] = (heads,)
        if config["mlp_layer_types"][layer] == "dense":
            found |= mlp_shapes(f"{at}.mlp", hidden, config["intermediate_size"])
        else:
            found |= expert_shapes(f"{at}.mlp", hidden, width, count)
            found[f"{at}.mlp.gate.e_score_correction_bias"] = (count,)
    return found
