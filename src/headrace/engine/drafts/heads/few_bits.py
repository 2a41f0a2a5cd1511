"""A head's matrices in few bits: it guesses only, so that what rounding costs is drafts.

A pass of a head takes the time in which its weights are read, and folders of heads have them in 8
bits or 16. In Q4_K headrace-head takes half of the time that it takes in 16 bits and is right 0.98
times as often, in Q8_0 two thirds and as often (benchmarks/figures/speculation.md). Tables that are
looked up, and matrices whose width is no whole number of blocks, stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from headrace.errors import CheckpointError
from headrace.models.loading.reader import EMBEDDING
from headrace.weights.checkpoint import Checkpoint
from headrace.weights.codecs import Codec, get_codec
from headrace.weights.hugging_face.head_folder import HeadFolder
from headrace.weights.tensors.tensor import Tensor

MANY_BITS = 8
"""A value's, from which on it is put into fewer; kinds with less have few already."""
SEARCHED_VALUES = 1 << 25
"""Of a head whose scales are searched for: a second of a core. Those of a larger one are taken from
its values, in Q8_0."""
PIECE_VALUES = 1 << 20
"""Looked at together by a thread: 4 MiB in float32, about what a core's cache holds."""


def few_bits_bytes(folder: HeadFolder) -> int:
    """Bytes of a head's weights as `in_few_bits` gives them."""
    return sum(
        tensor.nbytes if codec is None else tensor.shape[0] * codec.row_bytes(tensor.shape[1])
        for tensor, codec in _codecs(folder.tensors)
    )


def in_few_bits(folder: HeadFolder, num_threads: int) -> HeadFolder:
    """The same head in few bits, made by so many threads. Raises CheckpointError for values that
    are not finite."""
    with ThreadPoolExecutor(num_threads) as pool:
        made = list(pool.map(_recoded, _codecs(folder.tensors)))
    return replace(folder, tensors=dict(zip(folder.tensors, made, strict=True)))


def check_finite(checkpoint: Checkpoint, num_threads: int) -> None:
    """Layers that stay as they are stored, held to what `in_few_bits` holds a head to. Raises
    CheckpointError naming a tensor whose values are not finite."""
    stored = [tensor for tensor in checkpoint.tensors.values() if _has_many_bits(tensor.codec)]
    with ThreadPoolExecutor(num_threads) as pool:
        for tensor, finite in zip(stored, pool.map(_is_finite, stored), strict=True):
            if not finite:
                raise _damaged(tensor)


def _is_finite(tensor: Tensor) -> bool:
    """Read in pieces: experts of a layer may be one tensor of more bytes than there are to spare in
    float32."""
    data, order = tensor.data, tensor.row_order
    places = np.arange(len(data)) if order is None else order.astype(np.int64)
    step = max(1, PIECE_VALUES // max(1, tensor.shape[-1] if tensor.shape else 1))
    for first in range(0, len(places), step):
        part = places[first : first + step]
        rows = data[first : first + step] if order is None else data[part]
        if not np.isfinite(tensor.decoded(rows, part)).all():
            return False
    return True


def _damaged(tensor: Tensor) -> CheckpointError:
    return CheckpointError(
        f"tensor {tensor.name} holds NaN or infinity; the head is damaged, fetch it again"
    )


def _codecs(tensors: Mapping[str, Tensor]) -> list[tuple[Tensor, Codec | None]]:
    """Every tensor with the codec it gets; None for its own."""
    total = sum(tensor.num_values for tensor in tensors.values())
    kinds = ("Q4_K", "Q8_0") if total <= SEARCHED_VALUES else ("Q8_0",)
    codecs = [get_codec(kind) for kind in kinds]
    return [(tensor, _codec_of(name, tensor, codecs)) for name, tensor in tensors.items()]


def _codec_of(name: str, tensor: Tensor, codecs: list[Codec]) -> Codec | None:
    if name == EMBEDDING or len(tensor.shape) != 2 or not _has_many_bits(tensor.codec):
        return None
    width = tensor.shape[1]
    return next((codec for codec in codecs if width and width % codec.block_elements == 0), None)


def _has_many_bits(codec: Codec) -> bool:
    return 8 * codec.block_bytes >= MANY_BITS * codec.block_elements


def _recoded(stored: tuple[Tensor, Codec | None]) -> Tensor:
    tensor, codec = stored
    if not _has_many_bits(tensor.codec):
        return tensor
    values = tensor.to_f32()
    if not np.isfinite(values).all():
        # Rows of a product in few bits would hide it.
        raise _damaged(tensor)
    if codec is None:
        return tensor
    tensor.let_go()
    return Tensor(tensor.name, tensor.shape, codec, codec.encode(values))
