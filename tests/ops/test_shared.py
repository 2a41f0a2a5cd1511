"""What is prepared once at load is the same for every backend."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from headrace.ops import BACKENDS, make_ops
from headrace.ops.interface import Ops
from headrace.ops.shared import stacked_bias
from headrace.weights.codecs import get_codec
from headrace.weights.tensors.tensor import Tensor


def tensor(values: npt.ArrayLike, name: str = "t") -> Tensor:
    array = np.array(values, np.float32)
    rows = array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array[None]
    return Tensor(name, array.shape, get_codec("F32"), rows.view(np.uint8))


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.torch if name == "torch" else ()) for name in BACKENDS
    ]
)
def ops(request: pytest.FixtureRequest) -> Ops:
    if request.param == "cpu":
        pytest.importorskip(
            "headrace.ops.cpu._native", reason="the kernels are not built", exc_type=ImportError
        )
    if request.param == "torch":
        pytest.importorskip("torch", reason="the torch backend needs PyTorch")
    return make_ops(request.param, device="cpu")


def test_rope_angles_are_rounded_once_however_far_the_position(ops: Ops) -> None:
    inv_freq = np.array([1.0, 0.1, 1 / 3], np.float64)
    table = ops.rope_table(inv_freq, 70_000, attention_factor=1.25)
    assert table.rotary_dim == 6
    assert table.cos.shape == table.sin.shape == (70_000, 3)
    for position in (0, 1, 4097, 69_999):
        for index, frequency in enumerate(inv_freq.tolist()):
            angle = position * frequency
            assert table.cos[position, index] == np.float32(math.cos(angle) * 1.25)
            assert table.sin[position, index] == np.float32(math.sin(angle) * 1.25)
    with pytest.raises(ValueError, match="at least 1, not 0"):
        ops.rope_table(inv_freq, 0)


def test_vectors_take_their_offset_and_have_one_dimension(ops: Ops) -> None:
    got = ops.host(ops.vector(tensor([1.0, -2.5]), offset=1.0))
    assert got.dtype == np.float32
    assert got.tolist() == [2.0, -1.5]
    with pytest.raises(ValueError, match=r"t: shape \(1, 2\) is not that of a vector"):
        ops.vector(tensor([[1.0, 2.0]]))


def test_biases_are_stacked_with_zeros_where_a_part_has_none() -> None:
    parts = [tensor(np.ones((rows, 4))) for rows in (2, 3, 1)]
    stacked = stacked_bias(parts, [tensor([1.0, 2.0]), None, tensor([3.0])])
    assert stacked is not None
    assert stacked.tolist() == [1, 2, 0, 0, 0, 3]
    assert stacked_bias(parts, None) is None
    assert stacked_bias(parts, [None] * 3) is None
    with pytest.raises(ValueError, match="2 biases for 3 matrices: t, t, t"):
        stacked_bias(parts, [None] * 2)
    with pytest.raises(ValueError, match=r"b: shape \(2,\) does not fit \(3,\)"):
        stacked_bias(parts, [None, tensor([1.0, 2.0], "b"), None])
