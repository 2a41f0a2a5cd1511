"""Norms of every kind, scales, activations and the softcap: straightforward formulas."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from headrace.ops.operands import Norm
from headrace.ops.reference import ReferenceOps
from headrace.weights.codecs import get_codec
from headrace.weights.tensors.tensor import Tensor

OPS = ReferenceOps()
Floats = npt.NDArray[np.float32]


def normal(seed: int, *shape: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(actual: Floats, expected: npt.NDArray[np.float64]) -> None:
    """Equal but for the one rounding to float32 at the end and float64's own."""
    np.testing.assert_allclose(actual, expected, rtol=2.0**-23, atol=1e-12)


def tensor(values: Floats) -> Tensor:
    return Tensor("w", values.shape, get_codec("F32"), values.view(np.uint8))


@pytest.mark.parametrize("with_bias", [False, True])
def test_layer_norm(with_bias: bool) -> None:
    x, weight = normal(1, 5, 40) + np.float32(2), normal(2, 40)
    bias = normal(3, 40) if with_bias else None
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-3)
    expected = expected * weight + (0 if bias is None else bias)
    norm = Norm(weight, 1e-3, "layer", bias)
    close(OPS.norm(x, norm), expected)
    residual = normal(4, 5, 40)
    close(OPS.norm(x, norm, residual=residual), expected + residual)


def test_rms_norm_with_a_residual() -> None:
    x, weight, residual = normal(1, 5, 40), normal(2, 40), normal(3, 5, 40)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-3) * weight + residual
    close(OPS.norm(x, Norm(weight, 1e-3), residual=residual), expected)


@pytest.mark.parametrize("groups", [1, 3])
def test_norm_columns_takes_groups_apart(groups: int) -> None:
    x, weight, bias = normal(1, 5, 40), normal(2, 24), normal(3, 24)
    got = x.copy()
    OPS.norm_columns(got, 9, Norm(weight, 1e-3, "layer", bias), groups=groups)
    parts = x[:, 9:33].astype(np.float64).reshape(5, groups, -1)
    normed = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-3)
    close(got[:, 9:33], normed.reshape(5, 24) * weight + bias)
    assert (got[:, :9] == x[:, :9]).all() and (got[:, 33:] == x[:, 33:]).all()


def test_linear_and_embedding_scale() -> None:
    weight, bias, x, residual = normal(1, 7, 32), normal(2, 7), normal(3, 4, 32), normal(4, 4, 7)
    stored_bias = Tensor("b", (7,), get_codec("F32"), bias[None].view(np.uint8))
    packed = OPS.linear_weight([tensor(weight)], bias=[stored_bias])
    product = x.astype(np.float64) @ weight.T.astype(np.float64) + bias
    close(OPS.linear(x, packed, scale=0.25), product * 0.25)
    close(OPS.linear(x, packed, scale=0.25, residual=residual), product * 0.25 + residual)
    ids, added = np.array([6, 0, 6], np.int32), normal(5, 3, 32)
    table = OPS.embedding_weight(tensor(weight))
    assert (OPS.embedding(table, ids, scale=3.0) == weight[ids] * np.float32(3)).all()
    got = OPS.embedding(table, ids, scale=3.0, residual=added)
    assert (got == weight[ids] * np.float32(3) + added).all()


def test_activations_and_softcap() -> None:
    x, up = normal(1, 3, 50) * np.float32(4), normal(2, 3, 50)
    wide = x.astype(np.float64)
    cdf = np.array([[0.5 * math.erfc(-value / math.sqrt(2)) for value in row] for row in wide])
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    gated = np.concatenate([x, up], axis=1)
    for kind, expected in (
        ("silu", wide / (1 + np.exp(-wide))),
        ("gelu", wide * cdf),
        ("gelu_tanh", 0.5 * wide * (1 + np.tanh(inner))),
        ("relu", np.maximum(wide, 0)),
        ("relu2", np.maximum(wide, 0) ** 2),
    ):
        close(OPS.activation(x, kind), expected)  # type: ignore[arg-type]
        close(OPS.gated_activation(gated, kind), expected * up)  # type: ignore[arg-type]
    close(OPS.softcap(x, 2.5), 2.5 * np.tanh(wide / 2.5))
