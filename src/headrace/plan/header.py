"""Weights by part and by storage kind, as the tensors of an opened checkpoint say: exactly."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from headrace.weights.tensors.tensor import Tensor

# The first pattern that is in a tensor's name decides, so the order matters.
_PARTS = (
    ("head", re.compile(r"(^|\.)(lm_head|output|embed_out)\.")),
    ("experts", re.compile(r"\.experts\.")),
    ("tables", re.compile(r"embed_tokens_per_layer|(^|\.)wpe\.")),
    (
        "embedding",
        re.compile(r"embed_tokens|embed_in|(^|\.)(wte|word_embeddings|embeddings?)\."),
    ),
    ("other", re.compile(r"norm|(^|\.)ln_")),
    ("attention", re.compile(r"attn|attention|mixer|mamba|(^|\.)ssm")),
    ("ffn", re.compile(r"mlp|feed_forward|ffn|block_sparse_moe|(^|\.)fc\d|shared_expert")),
)

PARTS = ("embedding", "head", "attention", "ffn", "experts", "tables", "other")


class PartCounts(NamedTuple):
    """Values by part; `total` is their sum."""

    embedding: int
    head: int
    attention: int
    ffn: int
    experts: int
    tables: int
    """Those beside the embedding of which a token reads a row."""
    other: int
    total: int


def parameters_by_part(tensors: Iterable[Tensor]) -> PartCounts:
    """Values of `tensors` by part, told by canonical name; what no name tells is "other"."""
    counts = dict.fromkeys(PARTS, 0)
    for tensor in tensors:
        counts[part_of(tensor.name)] += tensor.num_values
    return PartCounts(**counts, total=sum(counts.values()))


def bytes_by_codec(tensors: Iterable[Tensor]) -> dict[str, int]:
    """Bytes of `tensors` by storage kind, the largest first."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        sizes[tensor.codec.name] = sizes.get(tensor.codec.name, 0) + tensor.nbytes
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def part_of(name: str) -> str:
    """The part that the tensor called `name` belongs to."""
    return next((part for part, pattern in _PARTS if pattern.search(name)), "other")
