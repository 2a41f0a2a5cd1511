"""GPT-2: learned positions, biases everywhere, matrices of layers stored (in, out)."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import BOS, EOS, Shapes

CASES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_inner": None},
    "gpt2-untied": {"tie_word_embeddings": False, "n_head": 2, "layer_norm_epsilon": 1e-4},
    "gpt2-gelu": {"activation_function": "gelu_pytorch_tanh", "n_layer": 3, "n_inner": 160},
    "gpt2-relu": {
        "activation_function": "relu",
        "scale_attn_by_inverse_layer_idx": True,
        "n_layer": 3,
    },
    "gpt2-unscaled": {"activation_function": "gelu", "scale_attn_weights": False},
}

# GGUF has no word for their activations, nor for their scales.
NOT_IN_GGUF = ("gpt2-relu", "gpt2-unscaled")

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpt2-relu", {"scale_attn_by_inverse_layer_idx": False}),
    ("gpt2-unscaled", {"scale_attn_weights": True}),
)
BROKEN_TENSORS = (("gpt2", "wpe.weight"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    return {**gpt2_config("gpt2", "GPT2LMHeadModel"), "activation_function": "gelu_new"} | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return gpt2_shapes(config, 3 * config["n_embd"], transposed=True)


def gpt2_config(model_type: str, hf_class: str) -> dict[str, Any]:
    """Keys GPT-2 and StarCoder 1 share."""
    return {
        "model_type": model_type,
        "architectures": [hf_class],
        "vocab_size": 288,
        "n_positions": 256,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_inner": 96,
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "scale_attn_weights": True,
        "tie_word_embeddings": True,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "torch_dtype": "float32",
    }


def gpt2_shapes(config: dict[str, Any], qkv_rows: int, *, transposed: bool) -> Shapes:
    """Name and shape of every tensor, matrices of layers (in, out) where `transposed`."""
    hidden = config["n_embd"]
    ffn = config["n_inner"] or 4 * hidden
    shapes: Shapes = {
        "transformer.wte.weight": (config["vocab_size"], hidden),
        "transformer.wpe.weight": (config["n_positions"], hidden),
        "transformer.ln_f.weight": (hidden,),
        "transformer.ln_f.bias": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    matrices = {
        "attn.c_attn": (qkv_rows, hidden),
        "attn.c_proj": (hidden, hidden),
        "mlp.c_fc": (ffn, hidden),
        "mlp.c_proj": (hidden, ffn),
    }
    for layer in range(config["n_layer"]):
        at = f"transformer.h.{layer}"
        for norm in ("ln_1", "ln_2"):
            shapes[f"{at}.{norm}.weight"] = shapes[f"{at}.{norm}.bias"] = (hidden,)
        for name, (out, width) in matrices.items():
            shapes[f"{at}.{name}.weight"] = (width, out) if transposed else (out, width)
            shapes[f"{at}.{name}.bias"] = (out,)
    return shapes
