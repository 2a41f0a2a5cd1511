"""GPT-NeoX and Pythia."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import BOS, EOS, Shapes

CASES: dict[str, dict[str, Any]] = {
    "gpt-neox": {},
    "gpt-neox-serial": {
        "use_parallel_residual": False,
        "rotary_pct": 1.0,
        "rotary_emb_base": 1000,
        "num_attention_heads": 2,
    },
    "gpt-neox-tanh": {"hidden_act": "gelu_new", "attention_bias": False, "layer_norm_eps": 1e-3},
}

NOT_IN_GGUF = ("gpt-neox-tanh",)
"""llama.cpp has no word for which GELU it is."""

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpt-neox", {"use_parallel_residual": False}),
    ("gpt-neox", {"rotary_pct": 0.5}),
    ("gpt-neox-serial", {"rotary_emb_base": 10000}),
)
BROKEN_TENSORS = (("gpt-neox", "query_key_value.bias"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "vocab_size": 288,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-5,
        "max_position_embeddings": 512,
        "rotary_pct": 0.25,
        "rotary_emb_base": 10000,
        "use_parallel_residual": True,
        "attention_bias": True,
        "classifier_dropout": 0.1,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "torch_dtype": "float32",
    } | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    shapes: Shapes = {
        "gpt_neox.embed_in.weight": (config["vocab_size"], hidden),
        "gpt_neox.final_layer_norm.weight": (hidden,),
        "gpt_neox.final_layer_norm.bias": (hidden,),
        "lm_head.weight": (config["vocab_size"], hidden),
    }
    matrices = {
        "attention.query_key_value": (3 * hidden, hidden),
        "attention.dense": (hidden, hidden),
        "mlp.dense_h_to_4h": (ffn, hidden),
        "mlp.dense_4h_to_h": (hidden, ffn),
    }
    for layer in range(config["num_hidden_layers"]):
        at = f"gpt_neox.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{at}.{norm}.weight"] = shapes[f"{at}.{norm}.bias"] = (hidden,)
        for name, shape in matrices.items():
            shapes[f"{at}.{name}.weight"] = shape
            if config["attention_bias"] or name.startswith("mlp."):
                shapes[f"{at}.{name}.bias"] = shape[:1]
    return shapes
