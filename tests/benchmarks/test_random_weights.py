"""Weights that are drawn where they are multiplied: valid, different, the same each time."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.weights.codecs import F8_E4M3, get_codec

torch = pytest.importorskip("torch", reason="the torch backend needs PyTorch")

from benchmarks.random_weights import RandomOps, is_stand_in, stand_in  # noqa: E402

pytestmark = pytest.mark.torch

KINDS = ("BF16", "F8_E4M3", "Q8_0", "Q4_K", "Q6_K", "MXFP4")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_valid_different_and_the_same_again(kind: str) -> None:
    codec = F8_E4M3 if kind == F8_E4M3.name else get_codec(kind)
    width = 512
    part = stand_in("model.layers.0.mlp.up_proj.weight", (96, width), codec)
    assert is_stand_in(part) and part.shape == (96, width)
    ops = RandomOps("cpu", 1)
    linear = ops.linear_weight([part, part])
    matrix = linear.packed.matrix
    values = matrix.rows(slice(None)).numpy()
    assert values.shape == (192, width) and np.isfinite(values).all()
    assert len(np.unique(matrix.data.numpy(), axis=0)) == 192, "rows are alike"
    wanted = width**-0.5
    assert wanted / 2 < values.std() < wanted * 2 and abs(values.mean()) < wanted / 5
    again = RandomOps("cpu", 1).linear_weight([part, part]).packed.matrix
    assert torch.equal(again.data, matrix.data)
    experts = ops.expert_weight([[part], [part]])
    assert torch.equal(experts.packed.matrix.data, matrix.data)
    copied = stand_in("other", (4, width), codec)
    assert matrix.nbytes == 192 * codec.row_bytes(width) + (
        0 if matrix.scales is None else matrix.scales.nbytes
    )
    assert not torch.equal(ops.linear_weight([copied]).packed.matrix.data, matrix.data[:4])


def test_what_has_rows_of_its_own_is_copied() -> None:
    from headrace.weights.tensors.tensor import Tensor

    codec = get_codec("F32")
    values = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    part = Tensor("model.layers.0.mlp.gate.weight", (8, 64), codec, codec.encode(values))
    matrix = RandomOps("cpu", 1).linear_weight([part]).packed.matrix
    assert np.array_equal(matrix.rows(slice(None)).numpy(), values)
