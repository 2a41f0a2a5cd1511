"""What both directions of conversion share: the result, what is checked, what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError, UnsupportedModelError
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.no_effect import is_derived
from headrace.weights.rope_rows import heads_to_half, heads_to_interleaved
from headrace.weights.source import TensorSource

_LM_HEAD = "lm_head.weight"

BIAS_KEYS = {
    "attention_bias": tuple(f"self_attn.{name}_proj" for name in "qkvo"),
    "mlp_bias": tuple(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
}
"""Keys of config.json that stand for biases, and the projections of a layer they speak of."""


@dataclass(frozen=True)
class ConversionResult:
    """path: the file or folder written. nbytes: size of the weights file.

    codecs: tensors written per codec name. notes: what differs from what was asked, or was lost
    without changing a result; one sentence each.
    """

    path: Path
    nbytes: int
    codecs: Mapping[str, int]
    notes: tuple[str, ...]


def check_conventions(checkpoint: Checkpoint) -> None:
    """Raise UnsupportedModelError for a convention neither container is written with."""
    conventions = checkpoint.conventions
    for name, plain in (("norm_offset", 0.0), ("fused_qkv", False), ("fused_gate_up", False)):
        if getattr(conventions, name) != plain:
            raise UnsupportedModelError(
                f"{checkpoint.path}: convention {name} is {getattr(conventions, name)}; "
                f"only {plain} can be written"
            )


def row_orders(checkpoint: Checkpoint, layout: str) -> dict[str, npt.NDArray[np.int32]]:
    """How rows of Q and K have to be taken to be stored in `layout`; {} when they already are."""
    if checkpoint.conventions.rope_layout == layout:
        return {}
    config = checkpoint.config
    num_heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // num_heads
    permute = heads_to_half if layout == "half" else heads_to_interleaved
    counts = {"q_proj": num_heads, "k_proj": config.get("num_key_value_heads") or num_heads}
    orders = {}
    for name, tensor in checkpoint.tensors.items():
        for module, count in counts.items():
            if f".self_attn.{module}." in name:
                if tensor.shape[0] != count * head_dim:
                    raise CheckpointError(
                        f"tensor {name!r} has {tensor.shape[0]} rows; {count} heads of {head_dim} "
                        f"need {count * head_dim}"
                    )
                orders[name] = permute(count, head_dim)
    return orders


def is_redundant(checkpoint: Checkpoint, name: str, notes: list[str]) -> bool:
    """Whether a tensor is left out, which `notes` are told."""
    if is_derived(name):
        notes.append(f"{name} was left out: it follows from the config")
        return True
    if name == _LM_HEAD and checkpoint.config.get("tie_word_embeddings"):
        notes.append(f"{name} was left out: the config ties it to the embedding")
        return True
    return False


def count_codecs(sources: list[TensorSource]) -> dict[str, int]:
    """Tensors per codec."""
    return dict(Counter(source.codec.name for source in sources))
