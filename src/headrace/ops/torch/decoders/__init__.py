"""Stored kinds of weights decoded on the device, from the bytes that files have.

`decoded(codec, rows)` gives the float32 that `Codec.decode` gives, bit for bit: the same operations
in the same order, over tensors. One file per group, as in `headrace.weights.codecs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from headrace.ops.torch.decoders.blocks import Blocks
from headrace.ops.torch.decoders.books import BOOKS
from headrace.ops.torch.decoders.few_bits import FEW_BITS
from headrace.ops.torch.decoders.folders import FOLDERS
from headrace.ops.torch.decoders.k_kinds import K_KINDS
from headrace.ops.torch.decoders.linear import LINEAR
from headrace.ops.torch.decoders.tables import TABLES
from headrace.weights.codecs import Codec

__all__ = ["decoded"]

_DECODERS: Mapping[str, Callable[[Blocks], torch.Tensor]] = {
    **LINEAR, **K_KINDS, **TABLES, **BOOKS, **FEW_BITS, **FOLDERS,
}  # fmt: skip
"""By the codec's name: float32[blocks, block_elements] of blocks."""


def decoded(codec: Codec, rows: torch.Tensor) -> torch.Tensor:
    """float32[n, width] of stored rows uint8[n, row_bytes].

    Raises ValueError for a codec that has no decoder here.
    """
    decode = _DECODERS.get(codec.name)
    if decode is None:
        raise ValueError(f"{codec.name} has no decoder of tensors")
    blocks = Blocks(rows.reshape(-1, codec.block_bytes), codec.layout)
    return decode(blocks).reshape(len(rows), -1)
