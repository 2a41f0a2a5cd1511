"""StarCoder2: LayerNorm, biases, a window, no gate."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    "starcoder2": {"num_key_value_heads": 1, "rope_theta": 999999.4420358813},
    # A window that the prompt outgrows.
    "starcoder2-window": {"sliding_window": 24, "num_hidden_layers": 3},
    "starcoder2-no-bias": {"use_bias": False, "tie_word_embeddings": False},
}

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("starcoder2-window", {"sliding_window": None}),
)
BROKEN_TENSORS = (("starcoder2", "c_fc.bias"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = base_config(
        "starcoder2",
        "Starcoder2ForCausalLM",
        hidden_act="gelu_pytorch_tanh",
        norm_epsilon=1e-5,
        sliding_window=None,
        use_bias=True,
        tie_word_embeddings=True,
        embedding_dropout=0.1,
        residual_dropout=0.1,
    )
    del keys["attention_bias"]
    return keys | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    hidden, ffn, bias = config["hidden_size"], config["intermediate_size"], config["use_bias"]
    shapes = decoder_shapes({**config, "attention_bias": bias}, PRE_NORMS)
    shapes = {name: shape for name, shape in shapes.items() if ".mlp." not in name}
    shapes["model.norm.bias"] = (hidden,)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        for norm in PRE_NORMS:
            shapes[f"{at}.{norm}.bias"] = (hidden,)
        for name, shape in {"c_fc": (ffn, hidden), "c_proj": (hidden, ffn)}.items():
            shapes[f"{at}.mlp.{name}.weight"] = shape
            if bias:
                shapes[f"{at}.mlp.{name}.bias"] = shape[:1]
    return shapes
