"""Qwen2 and Qwen3, whose GGUF files store rows of Q and K as Hugging Face does.

Source: llama.cpp models/qwen2.cpp, qwen3.cpp; conversion/qwen.py.
"""

from __future__ import annotations

from typing import Any

from headrace.weights.architectures.architecture import Architecture
from headrace.weights.architectures.shared import (
    ATTENTION_BIAS,
    BLOCK,
    HEAD_NORMS,
    KEYS,
    NO_WINDOW,
    SILU,
    TOP,
    keys_with_kv_heads,
)
from headrace.weights.config_reader import ConfigReader


def _windows_are_off(config: ConfigReader, entries: dict[str, Any]) -> None:
    """A config may state a window and, beside it, that it is not used; GGUF has no word for it."""
    del entries
    config.expect("use_sliding_window", bool, (False,), False)
    config.unused("sliding_window", "max_window_layers")


QWEN2 = Architecture(
    name="qwen2",
    model_type="qwen2",
    hf_class="Qwen2ForCausalLM",
    block=BLOCK,
    top=TOP,
    keys=keys_with_kv_heads(32),
    accepted={**SILU, **NO_WINDOW, "attention_bias": (True,), "mlp_bias": (False,)},
    writes=_windows_are_off,
)

QWEN3 = Architecture(
    name="qwen3",
    model_type="qwen3",
    hf_class="Qwen3ForCausalLM",
    block={**BLOCK, **HEAD_NORMS},
    top=TOP,
    keys=KEYS,
    accepted={**SILU, **NO_WINDOW},
    writes=_windows_are_off,
    bias_keys={"attention_bias": ATTENTION_BIAS},
)
