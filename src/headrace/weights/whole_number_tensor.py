"""Matrices of whole numbers of 8 bits, and of 4 beside activations of 8 (`byte_codes` reads them).

They are views: `data` puts the rows of blocks together (`codecs/eight_bits.py`) at each access, in
slices, so that a reader who takes one matrix after another needs the memory of one.
"""

from __future__ import annotations

import numpy as np

from headrace.errors import CheckpointError
from headrace.weights.grouped_tensor import Bytes, GroupedTensor

_SLICE_VALUES = 1 << 22


class WholeNumberTensor(GroupedTensor):
    """A matrix of whole numbers in groups; of 8 bits its `codes` are [rows, columns / 32, 32]."""

    def joined(self) -> Bytes:
        """The rows in one array; raises CheckpointError where a scale is not finite."""
        rows, columns = self.shape
        block, parts = self.codec.block_elements, self.groups
        count = columns // block
        scales = parts.scales()
        finite = np.isfinite(scales)
        if not finite.all():
            row, group = (int(index) for index in np.argwhere(~finite)[0])
            raise CheckpointError(
                f"tensor {self.name}: the scale of row {row}, group {group} is "
                f"{scales[row, group]}; scales have to be finite. The file is damaged, or was made "
                "with an error: fetch it again"
            )
        out = np.empty((rows, count), self.codec.layout)
        group_of = np.arange(count) * block // (parts.columns or columns)
        out["d"] = scales[:, group_of]
        if parts.zeros is not None:
            out["z"] = parts.zeros()[:, group_of]
        step = max(1, _SLICE_VALUES // columns)
        for first in range(0, rows, step):
            last = min(first + step, rows)
            out["qs"][first:last] = parts.codes(first, last).reshape(last - first, count, -1)
        return out.view(np.uint8).reshape(rows, -1)
