"""Tiny DeepSeek-V3s: layer 0 dense, then experts; with yarn, groups, and one product of queries."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import Shapes, base_config, expert_shapes, mlp_shapes

YARN = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
GROUPS = {"n_routed_experts": 12, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2}

CASES: dict[str, dict[str, Any]] = {
    "deepseek-v3": {**GROUPS, "rope_scaling": YARN},
    "deepseek-v3-plain": {
        "n_routed_experts": 6,
        "n_group": 1,
        "topk_group": 1,
        "n_shared_experts": 2,
        "norm_topk_prob": False,
        "q_lora_rank": None,
        "tie_word_embeddings": True,
    },
    "deepseek-v3-halves": {
        "rope_interleave": False,
        "attention_bias": True,
        "qk_rope_head_dim": 32,
        "v_head_dim": 48,
        "first_k_dense_replace": 0,
        "rope_scaling": {**YARN, "mscale": 0.8},
    },
}
NOT_IN_GGUF = ("deepseek-v3-halves",)
BROKEN_RULES: list[tuple[str, dict[str, Any]]] = [
    ("deepseek-v3", {"rope_scaling": {**YARN, "mscale": 0.0, "mscale_all_dim": 0.0}}),
    ("deepseek-v3", {"rope_scaling": {**YARN, "mscale": 0.5}}),
    ("deepseek-v3", {"n_group": 1, "topk_group": 1}),
    ("deepseek-v3", {"norm_topk_prob": False}),
    ("deepseek-v3", {"routed_scaling_factor": 1.0}),
    ("deepseek-v3", {"rope_interleave": False}),
    ("deepseek-v3-halves", {"rope_interleave": True}),
]
BROKEN_TENSORS = [
    ("deepseek-v3", "e_score_correction_bias"),
    ("deepseek-v3-halves", "kv_a_proj_with_mqa.bias"),
]


def latent_config(model_type: str, hf_class: str, **keys: Any) -> dict[str, Any]:
    """config.json of a tiny model in DeepSeek's words."""
    heads = keys.get("num_attention_heads", 4)
    return base_config(
        model_type,
        hf_class,
        **{
            "num_hidden_layers": 3,
            "num_key_value_heads": heads,
            "hidden_act": "silu",
            "rms_norm_eps": 1e-6,
            "kv_lora_rank": 64,
            "q_lora_rank": 32,
            "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 16,
            "v_head_dim": 32,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
            "moe_intermediate_size": 32,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "routed_scaling_factor": 2.5,
            **keys,
        },
    )


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        latent_config(
            "deepseek_v3",
            "DeepseekV3ForCausalLM",
            n_group=2,
            topk_group=1,
            norm_topk_prob=True,
            scoring_func="sigmoid",
            topk_method="noaux_tc",
            num_nextn_predict_layers=0,
        )
        | overrides
    )


def shapes(config: dict[str, Any], *, bias: bool = True) -> Shapes:
    """Name and shape of every tensor. bias: whether there is one of the choice of experts."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    latent, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope, value, rank = (config[k] for k in ("qk_nope_head_dim", "v_head_dim", "q_lora_rank"))
    found: Shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = (config["vocab_size"], hidden)
    attention: Shapes = {
        "kv_a_proj_with_mqa.weight": (latent + rope, hidden),
        "kv_a_layernorm.weight": (latent,),
        "kv_b_proj.weight": (heads * (nope + value), latent),
        "o_proj.weight": (hidden, heads * value),
    }
    biased = ["kv_a_proj_with_mqa", "o_proj"]
    if rank is None:
        attention["q_proj.weight"] = (heads * (nope + rope), hidden)
    else:
        attention["q_a_proj.weight"] = (rank, hidden)
        attention["q_a_layernorm.weight"] = (rank,)
        attention["q_b_proj.weight"] = (heads * (nope + rope), rank)
        biased.append("q_a_proj")
    if config["attention_bias"]:
        attention |= {f"{name}.bias": attention[f"{name}.weight"][:1] for name in biased}
    count, width = config["n_routed_experts"], config["moe_intermediate_size"]
    experts = expert_shapes("mlp", hidden, width, count)
    if bias:
        experts["mlp.gate.e_score_correction_bias"] = (count,)
    experts |= mlp_shapes("mlp.shared_experts", hidden, width * config["n_shared_experts"])
    dense = mlp_shapes("mlp", hidden, config["intermediate_size"])
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{at}.{name}.weight"] = (hidden,)
        found |= {f"{at}.self_attn.{name}": shape for name, shape in attention.items()}
        mlp = dense if layer < config["first_k_dense_replace"] else experts
        found |= {f"{at}.{name}": shape for name, shape in mlp.items()}
    return found
