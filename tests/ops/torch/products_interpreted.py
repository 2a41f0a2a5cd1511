"""Products of the kernels on small shapes: against the reference, PyTorch's own operations and
themselves in any company, and the bits of the CPU kernels where sums are exact.

Not collected by itself, since a process interprets or compiles from the import of Triton on:
`test_kernels.py` runs this file interpreted (TRITON_INTERPRET=1), and on a device it is named
itself (docs/gpu.md).
"""

from __future__ import annotations

import numpy as np
import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.reference import ReferenceOps
from headrace.ops.reference.arithmetic import round_bf16
from headrace.ops.torch.triton import products
from headrace.ops.torch.triton.kinds import KINDS
from headrace.weights.codecs import BLOCK_ROUNDED
from headrace.weights.codecs.float8 import F8_E4M3, VALUES
from headrace.weights.tensors.scaled_tensor import ScaledTensor
from headrace.weights.tensors.tensor import Tensor
from tests.ops.cpu.cases import F32, LEVELS, matrix, named, normal, whole_blocks
from tests.ops.cpu.test_linear import quantised_bound
from tests.ops.torch.bounds import of_product
from tests.ops.torch.on_host import kernel_ops, torch_ops

pytestmark = pytest.mark.torch

REFERENCE = ReferenceOps()
FUSED = CpuOps(next(level for level in LEVELS if level not in ("portable", "amx")), 1)
"""The CPU kernels at a level that fuses products and sums, as devices do."""
DENSE = [name for name, kind in KINDS.items() if not kind.library]
BYTES = [name for name, kind in KINDS.items() if not kind.floats]
AS_THE_CPU = [name for name in BYTES if name not in BLOCK_ROUNDED]
"""Those that are added up as the CPU does it, which sums blocks of the others in whole numbers."""


def limit_of(x: F32, tensor: Tensor) -> np.ndarray:
    """What rounding may change of a product with the reference's."""
    if tensor.codec.name in BYTES:
        return quantised_bound(x, tensor)
    return of_product(round_bf16(x), tensor.to_f32())


@pytest.mark.computes("products", "triton", "bound", kinds=DENSE)
@pytest.mark.parametrize("codec", DENSE)
def test_agree_with_the_reference_and_do_not_depend_on_other_rows(codec: str) -> None:
    ops, plain = kernel_ops(), torch_ops()
    for seed, out, least, rows in ((4, 40, 96, 5), (7, 40, 300, 67)):
        width = whole_blocks(codec, least)
        tensor, x = matrix(seed, out, width, codec), normal(6, rows, width)
        weight = ops.linear_weight([tensor])
        got, limit = ops.linear(x, weight), limit_of(x, tensor)
        with named(out=out, width=width, rows=rows):
            want = REFERENCE.linear(x, REFERENCE.linear_weight([tensor]))
            assert (np.abs(got - want) <= limit).all()
            # Both are within the bound of what is exact.
            assert (np.abs(got - plain.linear(x, plain.linear_weight([tensor]))) <= 2 * limit).all()
            # The interpreter's product of floats is NumPy's, which adds up otherwise in other rows
            # of a tile: these begin where tiles do.
            for at in (0, rows // 64 * 64):
                assert (ops.linear(x[at : at + 3].copy(), weight) == got[at : at + 3]).all()
    assert ops.linear(np.empty((0, width), np.float32), weight).shape == (0, 40)


@pytest.mark.computes("products", "triton", "bits", kinds=AS_THE_CPU)
@pytest.mark.parametrize("codec", AS_THE_CPU)
def test_bytes_have_the_bits_of_the_cpu_kernels(codec: str) -> None:
    """Of each segment of k, and of their sum."""
    ops, width = kernel_ops(), products.SEGMENT + whole_blocks(codec, 32)
    tensor, x = matrix(5, 33, width, codec), normal(8, 18, width)
    cut = tensor.codec.row_bytes(products.SEGMENT)
    parts = [
        (x[:, : products.SEGMENT], tensor.data[:, :cut]),
        (x[:, products.SEGMENT :], tensor.data[:, cut:]),
    ]
    sums = [
        FUSED.linear(
            of_x.copy(),
            FUSED.linear_weight([Tensor("part", (33, of_x.shape[1]), tensor.codec, data.copy())]),
        )
        for of_x, data in parts
    ]
    weight = ops.linear_weight([tensor])
    assert (ops.linear(x, weight) == sums[0] + sums[1]).all()
    assert (ops.linear(x[:3].copy(), weight) == (sums[0] + sums[1])[:3]).all()


def test_how_work_is_shared_out_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether one program goes over all segments of k or each goes to one of its own."""
    ops = kernel_ops()
    for codec in ("Q4_K", "F8_E4M3"):
        tensor, x = matrix(6, 20, 1280, codec), normal(9, 2, 1280)
        results = []
        for enough in (0, 1 << 30):
            monkeypatch.setattr(products, "ENOUGH_PROGRAMS", enough)
            results.append(ops.linear(x, ops.linear_weight([tensor])))
        assert (results[0] == results[1]).all(), codec


def test_every_number_of_fp8_is_read() -> None:
    codes = np.arange(256, dtype=np.uint8)[:, None].repeat(8, axis=1)
    scales = np.full((256, 1), 0.5, np.float32)
    tensor = ScaledTensor(
        "all", (256, 8), F8_E4M3, codes, scales=scales, block=(1, 8), scale_bytes=1024
    )
    x = np.zeros((1, 8), np.float32)
    x[0, 0] = 2
    ops = kernel_ops()
    got = ops.linear(x, ops.linear_weight([tensor]))[0]
    assert np.array_equal(got, VALUES[codes[:, 0]], equal_nan=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_shows_in_its_own_row_only(bad: float) -> None:
    ops = kernel_ops()
    for codec in ("Q4_K", "Q6_K", "F8_E4M3"):
        weight, x = ops.linear_weight([matrix(1, 20, 256, codec)]), normal(2, 5, 256)
        clean = ops.linear(x, weight)
        x[3, 33] = bad
        spoilt = ops.linear(x, weight)
        assert (spoilt[[0, 1, 2, 4]] == clean[[0, 1, 2, 4]]).all(), codec
        assert not np.isfinite(spoilt[3]).any(), codec
