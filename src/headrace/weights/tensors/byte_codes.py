"""Numbers of 8 bits as folders store them, and of 4 bits in a byte each, for a
`WholeNumberTensor`.

How numbers of 8 bits lie in little-endian words of 32, the first in the lowest bits:

    compressed  [rows, columns / 4]   four neighbours of a row, 128 above signed numbers
    gptq        [columns / 4, rows]   four neighbours of a column, which is a row of the file
    awq         [columns, rows / 4]   four rows in the order 0 2 1 3
    plain       bytes [rows, columns], signed

Sources: compressed-tensors compressors (pack_quantized/helpers.py, naive_quantized/base.py),
GPTQModel (qweight, qzeros of 8 bits), vLLM layers/quantization/awq_marlin.py (order of rows).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from headrace.errors import CheckpointError
from headrace.weights.tensors.grouped_tensor import Bytes, Codes, Words

AWQ_ORDER = (0, 2, 1, 3)
"""Of four rows, the one whose number is in byte i of a word."""

Zeros = Callable[[], Bytes]
"""uint8[rows, groups]"""


def _runs(numbers: Bytes) -> Bytes:
    return numbers.reshape(len(numbers), -1, 32)


def of_signed(numbers: Bytes) -> Codes:
    """Numbers of signed bytes[rows, columns], 128 above what they are."""
    return lambda first, last: _runs(numbers[first:last] ^ np.uint8(128))


def of_rows(words: Words) -> Codes:
    """Numbers of words[rows, columns / 4]."""
    return lambda first, last: _runs(_bytes(words[first:last]))


def of_columns(words: Words) -> Codes:
    """Numbers of words[columns / 4, rows]."""
    return lambda first, last: _runs(_bytes(words[:, first:last].T))


def of_awq(words: Words) -> Codes:
    """Numbers of words[columns, rows / 4] in AWQ's order."""

    def codes(first: int, last: int) -> Bytes:
        begin, end = first // 4, -(-last // 4)
        return _runs(_by_row(words[:, begin:end])[first - 4 * begin : last - 4 * begin])

    return codes


def of_nibbles(name: str, numbers: Bytes) -> Codes:
    """Numbers from -8 to 7 of signed bytes[rows, columns], 8 above what they are, in halves.

    name: of their tensor. The result raises CheckpointError for a number beyond.
    """

    def codes(first: int, last: int) -> Bytes:
        moved = numbers[first:last] + np.uint8(8)
        if (moved > 15).any():
            raise CheckpointError(
                f"tensor {name}: a number is {numbers[first:last][moved > 15].view(np.int8)[0]}; "
                "of 4 bits they are from -8 to 7. The file is damaged, fetch it again"
            )
        runs = moved.reshape(last - first, -1, 2, 16)
        packed: Bytes = runs[:, :, 0] | runs[:, :, 1] << np.uint8(4)
        return packed

    return codes


def zeros_of_signed(numbers: Bytes) -> Zeros:
    """Zero points of signed bytes[rows, groups]."""
    return lambda: numbers ^ np.uint8(128)


def zeros_of_gptq(words: Words, more: int) -> Zeros:
    """The same of words[groups, rows / 4].

    more: 1 where stored less one: the maker subtracts it from all four of a word, modulo 2**32, so
    that a zero point of 0 borrows from its neighbour.
    """
    return lambda: _bytes(words + np.uint32(more * 0x01010101)).T


def zeros_of_awq(words: Words) -> Zeros:
    """The same of AWQ's order."""
    return lambda: _by_row(words)


def zeros_of_compressed(words: Words, rows: int) -> Zeros:
    """The same of words[rows / 4 rounded up, groups], packed along rows."""
    return lambda: _bytes(words.T).T[:rows]


def _bytes(words: Words) -> Bytes:
    """uint8[n, 4 m] of words[n, m], the lowest bits first."""
    return words.astype("<u4", order="C").view(np.uint8).reshape(len(words), -1)


def _by_row(words: Words) -> Bytes:
    """uint8[4 m, columns] of words[columns, m], rows in AWQ's order."""
    numbers = _bytes(words).reshape(len(words), -1, 4)
    out: npt.NDArray[np.uint8] = np.empty((numbers.shape[1], 4, len(words)), np.uint8)
    for place, row in enumerate(AWQ_ORDER):
        out[:, row] = numbers[:, :, place].T
    return out.reshape(-1, len(words))
