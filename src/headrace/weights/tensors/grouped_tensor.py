"""Matrices of 4-bit numbers whose scales, and zero points, a folder stores in tensors of their own.

They are views: `data` puts the rows of blocks together (`codecs/four_bits.py`) at each access, in
slices, so that a reader who takes one matrix after another needs the memory of one.

How numbers of 4 bits lie in little-endian words of 32, the first in the lowest bits:

    compressed  [rows, columns / 8]   eight neighbours of a row
    gptq        [columns / 8, rows]   eight neighbours of a column, which is a row of the file
    awq         [columns, rows / 8]   eight rows in the order 0 2 4 6 1 3 5 7
    pairs       bytes [rows, columns / 2], two neighbours of a row

Zero points of gptq are stored less one: the maker subtracts 0x11111111 from each word, so that a
zero point of 0 borrows from its neighbour. They are read as GPTQModel reads them, by adding it to
the word again, modulo 2**32; a 15 that was stored is 0 then, never 16.

Sources: compressed-tensors compressors/pack_quantized/helpers.py and compressors/nvfp4, GPTQModel
utils/model.py (convert_gptq_v1_to_v2_format_module and the way back) and AutoGPTQ (qweight,
qzeros), AutoAWQ and vLLM layers/quantization/auto_awq.py (order of rows), modelopt
qtensor/nvfp4_tensor.py (scales of blocks).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.codecs import F8_E4M3, Codec
from headrace.weights.tensors.pieces import PiecedTensor

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
F32 = npt.NDArray[np.float32]
Order = npt.NDArray[np.int32]

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Of eight rows, the one whose number is in bits 4 i of a word."""

LEAST_SCALE, MOST_SCALE = 2.0**-117, 2.0**119
"""Between them, or 0, is a scale of whole numbers, of either sign: products are normal float32s."""
LEAST_WHOLE, MOST_WHOLE = 2.0**-108, 2.0**110
"""Between them is the scale of a whole matrix of E2M1, whose groups have one from 2**-9 to 448."""

_SYMMETRIC_ZERO = 8
"""Of 4 bits; of 8 it is 128."""
_ONE_EACH = np.uint32(0x11111111)
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
    """uint8[rows, groups], where there are zero points; of symmetric numbers all are 8."""
    scale: float = 1.0
    """Scale of the whole matrix, a float32; of E2M1."""
    columns: int = 0
    """Columns of a group; 0 for a whole row."""
    nbytes: int = 0
    """Bytes that the folder holds it in, scales and zero points included."""


class GroupedTensor(PiecedTensor):
    """A matrix of 4-bit numbers in groups."""

    symmetric_zero: ClassVar[int] = _SYMMETRIC_ZERO
    groups: Groups

    def __init__(
        self,
        name: str,
        shape: tuple[int, int],
        codec: Codec,
        groups: Groups,
        column_order: Order | None = None,
    ) -> None:
        """column_order: as of `Tensor`; `groups` gives numbers in it."""
        super().__init__(name, shape, codec)
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "column_order", column_order)

    @property
    def nbytes(self) -> int:
        """Bytes of storage as the folder has it."""
        return self.groups.nbytes

    def joined(self) -> Bytes:
        """The rows in one array.

        Raises CheckpointError for a scale that is no number or out of range, for scales that are
        all 0 though numbers are not, and for a zero point that symmetric numbers do not have.
        """
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
            # Of 0 the numbers are 0 in every reader: makers that do not clamp round to it.
            self._check(scales < 127, scales, "0, or from 0.00195 to 448")
            out["d"], out["e"] = parts.scale, scales.reshape(rows, count, -1)
            self._check_any(scales, out["qs"] & np.uint8(0x77))
            return out.view(np.uint8).reshape(rows, -1)
        self._check_sizes(scales)
        group = np.arange(count) * block // (parts.columns or columns)
        out["d"] = scales[:, group]
        zeros = None if parts.zeros is None else parts.zeros()
        if "z" not in (self.codec.layout.names or ()):
            self._check_symmetric(zeros)
            self._check_any(scales, out["qs"] ^ np.uint8(17 * _SYMMETRIC_ZERO))
        elif zeros is not None:
            out["z"] = zeros[:, group]
            self._check_any(scales, out["qs"] ^ (out["z"] * np.uint8(17))[:, :, None])
        return out.view(np.uint8).reshape(rows, -1)

    def _check_sizes(self, scales: npt.NDArray[Any]) -> None:
        sizes = np.abs(scales)
        good = (sizes == 0) | (sizes >= LEAST_SCALE) & (sizes <= MOST_SCALE)
        self._check(good, scales, f"0, or of a size from {LEAST_SCALE:.3g} to {MOST_SCALE:.3g}")

    def _check(self, good: npt.NDArray[np.bool_], scales: npt.NDArray[Any], limits: str) -> None:
        if not good.all():
            row, group = (int(index) for index in np.argwhere(~good)[0])
            scale = scales[row, group]
            value = F8_E4M3.decode(scales[row, [group]])[0] if scales.dtype == np.uint8 else scale
            raise CheckpointError(
                f"tensor {self.name}: the scale of row {row}, group {group} is {value:g}; a scale "
                f"has to be {limits}. The file is damaged, or was made with an error: fetch it "
                "again"
            )

    def _check_any(self, scales: npt.NDArray[Any], numbers: Bytes) -> None:
        """Some scale is above 0 where some number is: weights that are all lost are damage."""
        if not scales.any() and numbers.any():
            raise CheckpointError(
                f"tensor {self.name}: all {scales.size} scales are 0, and its numbers are not. The "
                "file is damaged, fetch it again"
            )

    def _check_symmetric(self, zeros: Bytes | None) -> None:
        if zeros is not None and (wrong := np.argwhere(zeros != self.symmetric_zero)).size:
            row, group = (int(index) for index in wrong[0])
            raise CheckpointError(
                f"tensor {self.name}: the config states symmetric numbers, whose zero point is "
                f"{self.symmetric_zero}, and qzeros has {zeros[row, group]} at row {row}, group "
                f"{group}. Config and weights are not of one model, or the config is wrong (sym, "
                "zero_point, checkpoint_format): fetch the folder again"
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


def in_order(codes: Codes, order: Order) -> Codes:
    """The same numbers with their columns in another order: column i is column order[i]."""

    def ordered(first: int, last: int) -> Bytes:
        runs = codes(first, last)
        numbers = np.concatenate([runs & np.uint8(15), runs >> np.uint8(4)], axis=2)
        turned = np.take(numbers.reshape(last - first, -1), order, axis=1)
        turned = turned.reshape(last - first, -1, 2, 16)
        packed: Bytes = turned[:, :, 0] | turned[:, :, 1] << np.uint8(4)
        return packed

    return ordered


def zeros_of_gptq(words: Words, *, less_one: bool) -> Callable[[], Bytes]:
    """Zero points uint8[rows, groups] of words[groups, rows / 8]. less_one: how they are stored."""

    def zeros() -> Bytes:
        # Of arrays the addition is modulo 2**32.
        whole = words + _ONE_EACH if less_one else words
        return _numbers(whole).reshape(len(words), -1).T

    return zeros


def zeros_of_awq(words: Words) -> Callable[[], Bytes]:
    """The same of AutoAWQ's order."""
    return lambda: _by_row(np.ascontiguousarray(words.T))


def zeros_of_compressed(words: Words, rows: int) -> Callable[[], Bytes]:
    """The same of words[rows / 8 rounded up, groups], packed along rows."""

    def zeros() -> Bytes:
        numbers = _numbers(words).swapaxes(1, 2).reshape(-1, words.shape[1])
        return numbers[:rows]

    return zeros
