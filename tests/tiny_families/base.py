"""What tiny configs of several families have in common."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

BOS, EOS = 256, 257

Shapes = dict[str, tuple[int, ...]]


def base_config(model_type: str, hf_class: str, **keys: Any) -> dict[str, Any]:
    """Keys that nearly every config.json has, and then those of the family."""
    return {
        "model_type": model_type,
        "architectures": [hf_class],
        "vocab_size": 288,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_cache": True,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": None,
        "torch_dtype": "float32",
        **keys,
    }


def head_dim_of(config: dict[str, Any]) -> int:
    """head_dim, or hidden / heads."""
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


PRE_NORMS: dict[str, tuple[int, ...] | None] = {
    "input_layernorm": None,
    "post_attention_layernorm": None,
}
"""Norms of a Llama layer."""


def decoder_shapes(
    config: dict[str, Any],
    norms: dict[str, tuple[int, ...] | None],
    *,
    fused_gate_up: bool = False,
    output_bias: bool = True,
) -> Shapes:
    """Embedding, head, final norm, and layers of attention, a gated MLP and these norms.

    norms: name within a layer, and shape (None: hidden_size). output_bias: whether attention_bias
    speaks of o_proj as well.
    """
    hidden, ffn, head_dim = config["hidden_size"], config["intermediate_size"], head_dim_of(config)
    width, kv_width = (
        config[key] * head_dim for key in ("num_attention_heads", "num_key_value_heads")
    )
    shapes: Shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    attention = {
        "q_proj": (width, hidden),
        "k_proj": (kv_width, hidden),
        "v_proj": (kv_width, hidden),
        "o_proj": (hidden, width),
    }
    mlp = {"gate_proj": (ffn, hidden), "up_proj": (ffn, hidden), "down_proj": (hidden, ffn)}
    if fused_gate_up:
        mlp = {"gate_up_proj": (2 * ffn, hidden), "down_proj": (hidden, ffn)}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        for name, shape in norms.items():
            shapes[f"{at}.{name}.weight"] = shape or (hidden,)
        for name, shape in attention.items():
            shapes[f"{at}.self_attn.{name}.weight"] = shape
            if config["attention_bias"] and (output_bias or name != "o_proj"):
                shapes[f"{at}.self_attn.{name}.bias"] = shape[:1]
        for name, shape in mlp.items():
            shapes[f"{at}.mlp.{name}.weight"] = shape
            if config.get("mlp_bias"):
                shapes[f"{at}.mlp.{name}.bias"] = shape[:1]
    return shapes


EXPERT_NAMES = ("gate_proj", "up_proj", "down_proj")
"""Modules of an expert as most families name them."""


def mlp_shapes(at: str, hidden: int, width: int, names: tuple[str, ...] = EXPERT_NAMES) -> Shapes:
    """A gated MLP's weights under `at`."""
    gate, up, down = names
    return {
        f"{at}.{gate}.weight": (width, hidden),
        f"{at}.{up}.weight": (width, hidden),
        f"{at}.{down}.weight": (hidden, width),
    }


def expert_shapes(
    prefix: str, hidden: int, width: int, count: int, names: tuple[str, ...] = EXPERT_NAMES
) -> Shapes:
    """The weights of a layer's experts under `prefix`, and of its router, `gate`."""
    shapes: Shapes = {f"{prefix}.gate.weight": (count, hidden)}
    for number in range(count):
        shapes |= mlp_shapes(f"{prefix}.experts.{number}", hidden, width, names)
    return shapes


def with_experts(dense: Shapes, layers: Collection[int], experts: Shapes) -> Shapes:
    """A decoder's weights with `experts` (by name in a layer) for the MLPs of `layers`."""
    shapes: Shapes = {}
    for name, shape in dense.items():
        layer = int(name.split(".")[2]) if ".layers." in name else -1
        if ".mlp." not in name or layer not in layers:
            shapes[name] = shape
    for layer in layers:
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in experts.items()}
    return shapes
