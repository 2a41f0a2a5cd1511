"""What a matrix takes once it is packed is known before it is."""

from __future__ import annotations

import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.packed_size import packed_bytes
from headrace.weights.codecs import get_codec
from tests.ops.cpu.cases import CODECS, matrix, whole_blocks


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("rows", "width"), [(16, 32), (17, 33), (48, 96), (1, 7)])
def test_it_is_what_the_kernels_take(codec: str, rows: int, width: int) -> None:
    if get_codec(codec).block_elements > 1:
        width = whole_blocks(codec, width)
    ops = CpuOps("portable", 1)
    stored = matrix(0, rows, width, codec)
    expected = packed_bytes(get_codec(codec), rows, width)
    assert ops.linear_weight([stored]).nbytes == expected
    assert ops.expert_weight([[stored], [stored]]).nbytes == 2 * expected
