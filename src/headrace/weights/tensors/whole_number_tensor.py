"""Matrices of whole numbers of 8 bits, and of 4 beside activations of 8 (`byte_codes` reads them).

They are views: `data` puts the rows of blocks together (`codecs/eight_bits.py`) at each access, in
slices, so that a reader who takes one matrix after another needs the memory of one.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from headrace.errors import CheckpointError
from headrace.weights.tensors.grouped_tensor import Bytes, GroupedTensor

_SLICE_VALUES = 1 << 22


class WholeNumberTensor(GroupedTensor):
    """A matrix of whole numbers in groups; of 8 bits its `codes` are [rows, columns / 32, 32]."""

    symmetric_zero: ClassVar[int] = 128

    def joined(self) -> Bytes:
        """The rows in one array; raises CheckpointError for scales and zero points that no matrix
        has."""
        rows, columns = self.shape
        block, parts = self.codec.block_elements, self.groups
        count = columns // block
        scales = parts.scales()
        self._check_sizes(scales)
        out = np.empty((rows, count), self.codec.layout)
        group_of = np.arange(count) * block // (parts.columns or columns)
        out["d"] = scales[:, group_of]
        zeros = None if parts.zeros is None else parts.zeros()
        if "z" not in (self.codec.layout.names or ()):
            self._check_symmetric(zeros)
        elif zeros is not None:
            out["z"] = zeros[:, group_of]
        step = max(1, _SLICE_VALUES // columns)
        for first in range(0, rows, step):
            last = min(first + step, rows)
            out["qs"][first:last] = parts.codes(first, last).reshape(last - first, count, -1)
        if not scales.any() and (out["qs"] != out["qs"].flat[0]).any():
            raise CheckpointError(
                f"tensor {self.name}: all {scales.size} scales are 0, and its numbers are not "
                "equal. The file is damaged, fetch it again"
            )
        return out.view(np.uint8).reshape(rows, -1)
