"""Falcon in the forms of 7B, 40B and 11B."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import BOS, EOS, Shapes

CASES: dict[str, dict[str, Any]] = {
    "falcon-7b": {},
    "falcon-40b": {
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
        "tie_word_embeddings": False,
        "num_hidden_layers": 3,
    },
    "falcon-11b": {
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
        "num_ln_in_parallel_attn": 1,
        "ffn_hidden_size": 160,
        "rope_theta": 500042.0,
    },
    "falcon-heads": {"multi_query": False, "bias": True},
}

NOT_IN_GGUF = ("falcon-heads",)
"""Cases that llama.cpp, and so a GGUF file, has no word for."""

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (("falcon-11b", {"rope_theta": 10000.0}),)
BROKEN_TENSORS = (
    ("falcon-40b", "ln_mlp.weight"),
    ("falcon-heads", "query_key_value.bias"),
)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return {
        "model_type": "falcon",
        "architectures": ["FalconForCausalLM"],
        "vocab_size": 288,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "layer_norm_epsilon": 1e-5,
        "alibi": False,
        "bias": False,
        "multi_query": True,
        "new_decoder_architecture": False,
        "parallel_attn": True,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "torch_dtype": "float32",
    } | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    ffn = config.get("ffn_hidden_size") or 4 * hidden
    kv_heads, norms = heads, ["input_layernorm"]
    if config["new_decoder_architecture"]:
        kv_heads = config["num_kv_heads"]
        if config.get("num_ln_in_parallel_attn", 2) == 2:
            norms = ["ln_attn", "ln_mlp"]
    elif config["multi_query"]:
        kv_heads = 1
    shapes: Shapes = {
        "transformer.word_embeddings.weight": (config["vocab_size"], hidden),
        "transformer.ln_f.weight": (hidden,),
        "transformer.ln_f.bias": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    matrices = {
        "self_attention.query_key_value": (hidden + 2 * kv_heads * hidden // heads, hidden),
        "self_attention.dense": (hidden, hidden),
        "mlp.dense_h_to_4h": (ffn, hidden),
        "mlp.dense_4h_to_h": (hidden, ffn),
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"transformer.h.{layer}"
        for norm in norms:
            shapes[f"{at}.{norm}.weight"] = shapes[f"{at}.{norm}.bias"] = (hidden,)
        for name, shape in matrices.items():
            shapes[f"{at}.{name}.weight"] = shape
            if config["bias"]:
                shapes[f"{at}.{name}.bias"] = shape[:1]
    return shapes
