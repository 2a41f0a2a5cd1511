"""StarCoder 1: GPT-2 with one head of K and V."""

from __future__ import annotations

from typing import Any

from tests.tiny_families.base import Shapes
from tests.tiny_families.gpt2 import gpt2_config, gpt2_shapes

CASES: dict[str, dict[str, Any]] = {
    "gpt-bigcode": {},
    "gpt-bigcode-heads": {"multi_query": False, "n_inner": None},
    "gpt-bigcode-tanh": {"activation_function": "gelu_pytorch_tanh", "n_head": 2},
}

NOT_IN_GGUF = ("gpt-bigcode-tanh",)
"""Cases that llama.cpp, and so a GGUF file, has no word for."""

BROKEN_RULES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpt-bigcode", {"scale_attn_weights": False}),
)
BROKEN_TENSORS = (("gpt-bigcode", "wpe.weight"),)


def config(**overrides: Any) -> dict[str, Any]:
    """config.json. overrides: its keys."""
    keys = gpt2_config("gpt_bigcode", "GPTBigCodeForCausalLM")
    keys |= {"activation_function": "gelu", "multi_query": True, "attention_softmax_in_fp32": True}
    return keys | overrides


def shapes(config: dict[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    hidden, heads = config["n_embd"], config["n_head"]
    kv_width = hidden // heads if config["multi_query"] else hidden
    return gpt2_shapes(config, hidden + 2 * kv_width, transposed=False)
