"""Qwen2 and Qwen2.5."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import PRE_NORMS, Shapes, base_config, decoder_shapes

CASES: dict[str, dict[str, Any]] = {
    "qwen2-tied": {"tie_word_embeddings": True, "rope_theta": 1000000.0},
    "qwen2-untied": {"num_key_value_heads": 1, "num_hidden_layers": 3},
    # What Qwen2.5's model cards add by hand for long texts.
    "qwen2-yarn": {
        "max_position_embeddings": 64,
        "rope_scaling": {
            "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
        },
    },
    "qwen2-upper-windows": {
        "use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1,
        "num_hidden_layers": 3,
    },
    "qwen2-window-types": {
        "use_sliding_window": True, "sliding_window": 40,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}  # fmt: skip

NOT_IN_GGUF = ("qwen2-upper-windows", "qwen2-window-types")

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("qwen2-upper-windows", {"max_window_layers": 3}),
)
BROKEN_TENSORS = (("qwen2-tied", "q_proj.bias"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = base_config(
        "qwen2",
        "Qwen2ForCausalLM",
        hidden_act="silu",
        rms_norm_eps=1e-6,
        use_sliding_window=False,
        sliding_window=32768,
        max_window_layers=28,
    )
    del keys["attention_bias"]
    return keys | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return decoder_shapes(config | {"attention_bias": True}, PRE_NORMS, output_bias=False)
