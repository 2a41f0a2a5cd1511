"""What a matrix takes once it is packed is known before it is."""

from __future__ import annotations

import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.packed_size import packed_bytes
from tests.ops.cpu.cases import CODECS, kind_of, matrix, whole_blocks


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("rows", "width"), [(16, 32), (17, 33), (48, 96), (1, 7)])
def test_it_is_what_the_kernels_take(codec: str, rows: int, width: int) -> None:
    if kind_of(codec).block_elements > 1:
        width = whole_blocks(codec, width)
    ops = CpuOps("portable", 1)
    stored = matrix(0, rows, width, codec)
    expected = packed_bytes(kind_of(codec), rows, width)
    assert ops.linear_weight([stored]).nbytes == expected
    assert ops.expert_weight([[stored], [stored]]).nbytes == 2 * expected
