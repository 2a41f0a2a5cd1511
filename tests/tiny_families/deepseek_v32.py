"""Tiny DeepSeek-V3.2s for texts of at most index_topk tokens, with the indexer's tensors."""

from __future__ import annotations

from typing import Any

from tests.tiny_families import deepseek_v3
from tests.tiny_families.base import Shapes
from tests.tiny_families.deepseek_v3 import GROUPS, YARN, latent_config

CASES: dict[str, dict[str, Any]] = {
    "deepseek-v32": {**GROUPS, "rope_scaling": YARN},
    "deepseek-v32-tied": {
        "n_group": 1,
        "topk_group": 1,
        "tie_word_embeddings": True,
        "index_topk": 144,
        "n_shared_experts": 2,
    },
}
BROKEN_RULES: list[tuple[str, dict[str, Any]]] = [
    ("deepseek-v32", {"n_group": 1, "topk_group": 1}),
    ("deepseek-v32", {"rope_scaling": {**YARN, "mscale": 0.0, "mscale_all_dim": 0.0}}),
]
BROKEN_TENSORS = [("deepseek-v32", "e_score_correction_bias")]


def indexed_config(model_type: str, hf_class: str, **keys: Any) -> dict[str, Any]:
    """config.json of a tiny model with an indexer."""
    return latent_config(
        model_type,
        hf_class,
        **{
            "norm_topk_prob": True,
            "scoring_func": "sigmoid",
            "topk_method": "noaux_tc",
            "num_nextn_predict_layers": 0,
            "index_head_dim": 32,
            "index_n_heads": 2,
            "index_topk": 160,
            **keys,
        },
    )


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return (
        indexed_config("deepseek_v32", "DeepseekV32ForCausalLM", n_group=2, topk_group=1)
        | overrides
    )


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    found = deepseek_v3.shapes(config)
    for layer in range(config["num_hidden_layers"]):
        if config.get("indexer_types", ["full"] * (layer + 1))[layer] == "full":
            at = f"model.layers.{layer}.self_attn.indexer"
            found |= {f"{at}.{name}": shape for name, shape in indexer_shapes(config).items()}
    return found


def indexer_shapes(config: dict[str, Any]) -> Shapes:
    """The tensors of one indexer."""
    heads, width = config["index_n_heads"], config["index_head_dim"]
    hidden, rank = config["hidden_size"], config["q_lora_rank"]
    return {
        "wq_b.weight": (heads * width, rank),
        "wk.weight": (width, hidden),
        "k_norm.weight": (width,),
        "k_norm.bias": (width,),
        "weights_proj.weight": (heads, hidden),
    }
