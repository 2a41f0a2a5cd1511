"""All experts of a layer as stacks that are turned, and each expert on its own.

A stack of weights is [experts, columns, rows], one of biases [experts, rows]. The rows of several
matrices are joined (all of gate, then all of up: Llama 4, Qwen3-VL), or lie in turn (gate, up,
gate, up, ...: gpt-oss). gpt-oss's published folders hold weights as MXFP4 instead:
`{stack}_blocks`, bytes [experts, rows, blocks, 16] of two neighbouring values each, the first in
the low half, and `{stack}_scales`, an exponent for each block. The codec's block, which is GGUF's,
has value i in the low half of byte i and value i + 16 in the high half. No file holds an expert's
matrix in one piece, so each is a view of its pieces (`weights.tensors.pieces`); its values are the
same.

Source: transformers modeling_gpt_oss.py (order of dimensions), integrations/mxfp4.py (halves of a
byte).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.codecs import BYTES, MXFP4
from headrace.weights.tensors.pieces import SplitTensor, TurnedTensor
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.source import TensorSource
from headrace.weights.tensors.tensor import Tensor

Bytes = npt.NDArray[np.uint8]

BLOCKS, SCALES = "_blocks", "_scales"
"""Behind the name of a stack whose weights are MXFP4."""


def turned_parts(
    stored: Tensor, names: Sequence[str], most: int, folder: Path, *, in_turn: bool
) -> Iterator[Tensor]:
    """The parts of a stack of numbers, those of `names` for each expert.

    most: experts, at most. in_turn: whether rows of the parts lie in turn. Raises CheckpointError
    for a stack of another form.
    """
    vector, parts = names[0].endswith(".bias"), len(names)
    if (
        len(stored.shape) != (2 if vector else 3)
        or stored.shape[0] > most
        or stored.shape[-1] % parts
        or stored.codec.block_elements > 1
        or stored.codec is BYTES
        or isinstance(stored, ScaledTensor)
    ):
        form = "[experts, rows]" if vector else "[experts, columns, rows]"
        raise CheckpointError(
            f"{folder}: tensor {stored.name!r} is {stored.codec.name} and has shape "
            f"{list(stored.shape)}; {form} of F32, F16 or BF16 is required, with {most} experts "
            f"at most and as many rows of each of {parts} matrices"
        )
    columns = 1 if vector else stored.shape[1]
    rows, width = stored.shape[-1] // parts, stored.codec.block_bytes
    shape = (rows,) if vector else (rows, columns)

    for number in range(stored.shape[0]):
        data = stored.data[number * columns : (number + 1) * columns]
        for place, name in enumerate(names):
            values = (
                data.reshape(columns, rows, parts, width)[:, :, place]
                if in_turn
                else data.reshape(columns, parts, rows, width)[:, place]
            )
            yield TurnedTensor(name.format(number), shape, stored.codec, values.swapaxes(0, 1))


def mxfp4_parts(
    blocks: Tensor, scales: Tensor | None, names: Sequence[str], most: int, folder: Path
) -> Iterator[Tensor]:
    """The parts of a stack in MXFP4, those of `names` for each expert.

    Raises CheckpointError for a stack of another form, or without its scales.
    """
    parts = len(names)
    if (
        scales is None
        or len(blocks.shape) != 4
        or blocks.shape != (*scales.shape, MXFP4.block_elements // 2)
        or blocks.shape[0] > most
        or blocks.shape[1] % parts
        or not blocks.codec is scales.codec is BYTES
    ):
        other = "is not there" if scales is None else f"has {list(scales.shape)}"
        raise CheckpointError(
            f"{folder}: tensor {blocks.name!r} has shape {list(blocks.shape)} and the one of its "
            f"scales {other}; bytes [experts, rows, blocks, 16] and [experts, rows, blocks] are "
            f"required, with {most} experts at most and the rows of {parts} matrices in turn"
        )
    halves = blocks.data.reshape(blocks.shape)
    exponents = scales.data.reshape(scales.shape)
    for number in range(blocks.shape[0]):
        for place, name in enumerate(names):
            yield SplitTensor(
                name.format(number),
                halves[number, place::parts],
                exponents[number, place::parts],
            )


def turned_stack(
    name: str, members: Sequence[TensorSource], parts: int, *, in_turn: bool
) -> TensorSource:
    """A stack of numbers of alike single parts, for each expert its `parts` one after another."""
    first = members[0]
    if first.codec.block_elements > 1:
        raise CheckpointError(
            f"tensor {first.name!r} is {first.codec.name}, whose blocks cannot be turned; "
            f"{name!r} needs F32, F16 or BF16: name a codec to write it in"
        )
    rows, width = first.shape[0], first.codec.block_bytes
    columns = first.shape[1] if len(first.shape) == 2 else 1

    def pieces() -> Iterator[Bytes]:
        for start in range(0, len(members), parts):
            stored = np.stack(
                [_joined(member).reshape(rows, columns, width)
                 for member in members[start : start + parts]],
                axis=1 if in_turn else 0,
            )  # fmt: skip
            turned = stored.reshape(rows * parts, columns, width).swapaxes(0, 1)
            yield np.ascontiguousarray(turned).reshape(-1)

    shape = (len(members) // parts, *first.shape[1:], parts * rows)
    return TensorSource(name, shape, first.codec, pieces)


def _joined(source: TensorSource) -> Bytes:
    return np.concatenate([np.ascontiguousarray(piece).reshape(-1) for piece in source.pieces()])
