"""Matrices of 4-bit numbers whose scales, and zero points, a folder stores in tensors of their own.

They are views: `data` puts the rows of blocks together (`codecs/four_bits.py`) at each access, in
slices, so that a reader who takes one matrix after another needs the memory of one.

How numbers of 4 bits lie in little-endian words of 32, the first in the lowest bits:

    compressed  [rows, columns / 8]   eight neighbours of a row
    gptq        [columns / 8, rows]   eight neighbours of a column, which is a row of the file
    awq         [columns, rows / 8]   eight rows in the order 0 2 4 6 1 3 5 7
    pairs       bytes [rows, columns / 2], two neighbours of a row

Sources: compressed-tensors compressors/pack_quantized/helpers.py and compressors/nvfp4, GPTQModel
and AutoGPTQ (qweight, qzeros), AutoAWQ and vLLM layers/quantization/auto_awq.py (order of rows).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.codecs import Codec
from headrace.weights.pieces import PiecedTensor

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
F32 = npt.NDArray[np.float32]

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Of eight rows, the one whose number is in bits 4 i of a word."""

_SLICE_VALUES = 1 << 22
# Four bits of a word to eight of a double one, by halves.
_SPREAD = tuple(
    (np.uint64(shift), np.uint64(mask))
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F),
    )
)  # fmt: skip
_SHIFTS = np.arange(0, 32, 4, dtype=np.uint32)

Codes = Callable[[int, int], Bytes]
"""uint8[last - first, columns / 32, 16] of rows [first, last): of each 32 numbers the first 16 are
low halves of bytes, the others high halves."""


@dataclass(frozen=True)
class Groups:
    """The parts of a matrix as a folder stores them, each read when it is asked for."""

    codes: Codes
    """Numbers of some rows."""
    scales: Callable[[], npt.NDArray[Any]]
    """float32[rows, groups]; of E2M1 the codes uint8[rows, groups] of E4M3."""
    zeros: Callable[[], Bytes] | None = None
    """uint8[rows, groups], where there are zero points."""
    scale: float = 1.0
    """Scale of the whole matrix, a float32; of E2M1."""
    columns: int = 0
    """Columns of a group; 0 for a whole row."""
    nbytes: int = 0
    """Bytes that the folder holds it in, scales and zero points included."""


class GroupedTensor(PiecedTensor):
    """A matrix of 4-bit numbers in groups."""

    groups: Groups

    def __init__(self, name: str, shape: tuple[int, int], codec: Codec, groups: Groups) -> None:
        super().__init__(name, shape, codec)
        object.__setattr__(self, "groups", groups)

    @property
    def nbytes(self) -> int:
        """Bytes of storage as the folder has it."""
        return self.groups.nbytes

    def joined(self) -> Bytes:
        """The rows in one array; raises CheckpointError where a scale is not finite."""
        rows, columns = self.shape
        block, parts = self.codec.block_elements, self.groups
        count = columns // block
        out = np.empty((rows, count), self.codec.layout)
        step = max(1, _SLICE_VALUES // columns)
        for first in range(0, rows, step):
            last = min(first + step, rows)
            runs = parts.codes(first, last)
            out["qs"][first:last] = runs.reshape(last - first, count, block // 2)
        scales = parts.scales()
        if "e" in (self.codec.layout.names or ()):
            self._check((scales & np.uint8(127)) != 127, scales)
            out["d"], out["e"] = parts.scale, scales.reshape(rows, count, -1)
            return out.view(np.uint8).reshape(rows, -1)
        self._check(np.isfinite(scales), scales)
        group = np.arange(count) * block // (parts.columns or columns)
        out["d"] = scales[:, group]
        if parts.zeros is not None:
            out["z"] = parts.zeros()[:, group]
        return out.view(np.uint8).reshape(rows, -1)

    def _check(self, good: npt.NDArray[np.bool_], scales: npt.NDArray[Any]) -> None:
        if not good.all():
            place = tuple(int(index) for index in np.argwhere(~good)[0])
            raise CheckpointError(
                f"tensor {self.name}: the scale of row {place[0]}, group {place[1]} is "
                f"{'NaN' if scales.dtype == np.uint8 else scales[place]}; scales have to be "
                "finite. The file is damaged, or was made with an error: fetch it again"
            )


def _numbers(words: Words) -> Bytes:
    """uint8[..., 8] of words[...], the number in the lowest bits first."""
    return ((words[..., None] >> _SHIFTS) & np.uint32(15)).astype(np.uint8)


def _runs(words: Words) -> Bytes:
    """The runs of words[rows, columns / 8], the number in the lowest bits first."""
    spread = words.astype("<u8", order="C")
    for shift, mask in _SPREAD:
        spread |= spread << shift
        spread &= mask
    fours = spread.reshape(len(words), -1, 4)
    joined: npt.NDArray[np.uint64] = fours[:, :, :2] | fours[:, :, 2:] << np.uint64(4)
    return joined.view(np.uint8).reshape(len(words), -1, 16)


def along_rows(words: Words) -> Codes:
    """Numbers of words[rows, columns / 8]."""
    return lambda first, last: _runs(words[first:last])


def along_columns(words: Words) -> Codes:
    """Numbers of words[columns / 8, rows]."""

    return lambda first, last: _runs(words[:, first:last].T)


def across_rows(words: Words) -> Codes:
    """Numbers of words[columns, rows / 8] in AutoAWQ's order."""

    def codes(first: int, last: int) -> Bytes:
        begin, end = first // 8, -(-last // 8)
        part = np.ascontiguousarray(words[:, begin:end].T)
        numbers = _by_row(part)[first - 8 * begin : last - 8 * begin]
        runs = numbers.reshape(last - first, -1, 2, 16)
        packed: Bytes = runs[:, :, 0] | runs[:, :, 1] << np.uint8(4)
        return packed

    return codes


def _by_row(words: Words) -> Bytes:
    """uint8[8 n, columns] of words[n, columns], rows in AutoAWQ's order."""
    numbers = _numbers(words)
    out = np.empty((len(words), 8, words.shape[1]), np.uint8)
    for place, row in enumerate(AWQ_ORDER):
        out[:, row] = numbers[:, :, place]
    return out.reshape(-1, words.shape[1])


def in_pairs(pairs: Bytes) -> Codes:
    """Numbers of bytes[rows, columns / 2], the first of two in the low half."""

    return along_rows(np.ascontiguousarray(pairs).view("<u4"))


def zeros_of_gptq(words: Words, more: int) -> Callable[[], Bytes]:
    """Zero points uint8[rows, groups] of words[groups, rows / 8]. more: 1 where stored less one."""
    return lambda: _numbers(words).reshape(len(words), -1).T + np.uint8(more)


def zeros_of_awq(words: Words) -> Callable[[], Bytes]:
    """The same of AutoAWQ's order."""
    return lambda: _by_row(np.ascontiguousarray(words.T))


def zeros_of_compressed(words: Words, rows: int) -> Callable[[], Bytes]:
    """The same of words[rows / 8 rounded up, groups], packed along rows."""

    def zeros() -> Bytes:
        numbers = _numbers(words).swapaxes(1, 2).reshape(-1, words.shape[1])
        return numbers[:rows]

    return zeros
