"""Activations and the softcap: against float64 over their whole range, and with == themselves."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.operands import Activation
from headrace.ops.reference import ReferenceOps
from tests.ops.cpu.cases import F32, LEVELS, UNIT, normal

F64 = npt.NDArray[np.float64]
KINDS: tuple[Activation, ...] = ("silu", "gelu", "gelu_tanh")
SMALLEST = 2.0**-126


def everywhere() -> F32:
    """A fine grid where functions bend, and magnitudes over the whole range of float32."""
    grid = np.linspace(-20, 20, 400_001)
    powers = 10.0 ** np.linspace(-37, 38, 3001)
    return np.concatenate([grid, powers, -powers]).astype(np.float32)


def exact_silu(x: F64) -> F64:
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x))


# erfc, where 1 + erf would cancel.
exact_gelu: Callable[[F64], F64] = np.vectorize(
    lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2)), otypes=[np.float64]
)


def exact_gelu_tanh(x: F64) -> F64:
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def tail(kind: Activation, x: F64) -> F64:
    """-log of the share of x that is kept, where x is negative: what an exponential was given."""
    negative = np.minimum(x, 0)
    if kind == "silu":
        return -negative
    if kind == "gelu":
        return negative**2 / 2
    return -2 * math.sqrt(2 / math.pi) * (negative + 0.044715 * negative**3)


EXACT = {"silu": exact_silu, "gelu": exact_gelu, "gelu_tanh": exact_gelu_tanh}

# What docs/kernels.md states, in roundings: for positive x, for negative, and for negative x those
# of an exponential's argument for each unit of its size.
ROUNDINGS: dict[Activation, tuple[float, float, float]] = {
    "silu": (3, 3, 0),
    "gelu": (3.5, 7, 1),
    "gelu_tanh": (2.2, 6, 3),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_relative_error_over_the_whole_range(level: str, kind: Activation) -> None:
    ops, x = CpuOps(level, 2), everywhere()
    got = ops.activation(x[None], kind)[0].astype(np.float64)
    wide = x.astype(np.float64)
    exact = EXACT[kind](wide)
    positive, negative, slope = ROUNDINGS[kind]
    with np.errstate(over="ignore"):
        roundings = np.where(wide > 0, positive, negative + slope * tail(kind, wide))
        limit = roundings * UNIT * np.abs(exact)
    # Intermediate values below the smallest normal number are zero.
    kept = np.abs(exact) > 1e4 * SMALLEST
    error = np.abs(got - exact)
    assert (error[kept] <= limit[kept]).all(), f"{(error[kept] / limit[kept]).max():.2f} of it"
    assert (np.abs(got[~kept]) <= 1.1e4 * SMALLEST).all()
    assert error[wide < 0].max() < 6e-8
    assert (got[wide > 20] == wide[wide > 20]).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_reference(level: str, kind: Activation) -> None:
    ops, reference = CpuOps(level, 2), ReferenceOps()
    for width in (1, 16, 86, 1024, 3000):
        x = normal(1, 33, 2 * width) * np.float32(4)
        np.testing.assert_allclose(
            ops.activation(x, kind), reference.activation(x, kind), rtol=3e-6, atol=1e-6
        )
        got = ops.gated_activation(x, kind)
        np.testing.assert_allclose(got, reference.gated_activation(x, kind), rtol=3e-6, atol=2e-5)
        gate, up = np.ascontiguousarray(x[:, :width]), x[:, width:]
        apart = ops.activation(gate, kind) * up
        apart[np.abs(apart) < SMALLEST] = 0  # flushed
        assert (got == apart).all()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_zero_infinity_and_nan(level: str, kind: Activation) -> None:
    x = np.array([[0, -0.0, np.inf, np.nan, 3e38, -3e38, -1e20]], np.float32)
    got = CpuOps(level, 1).activation(x, kind)[0]
    np.testing.assert_array_equal(got, [0, 0, np.inf, np.nan, x[0, 4], 0, 0])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("cap", [1.0, 30.0, 50.0, 0.37])
def test_softcap_over_the_whole_range(level: str, cap: float) -> None:
    """tanh is good to 5.2 roundings; x / cap and the product with cap add one each."""
    ops, x = CpuOps(level, 2), everywhere()
    x = x[np.abs(x) < 3e36] * np.float32(cap)
    got = ops.softcap(x[None], cap)[0].astype(np.float64)
    wide, cap32 = x.astype(np.float64), float(np.float32(cap))
    exact = cap32 * np.tanh(wide / cap32)
    kept = np.abs(wide) > 1e3 * SMALLEST
    roundings = 5.2 if cap == 1 else 7.2
    assert (np.abs(got - exact)[kept] <= roundings * UNIT * np.abs(exact[kept])).all()
    assert (np.abs(got) <= cap32).all()
    far = np.abs(wide) > 9.1 * cap
    assert (np.abs(got[far]) == cap32).all()
    np.testing.assert_allclose(got, ReferenceOps().softcap(x[None], cap)[0], rtol=1e-6, atol=1e-35)


@pytest.mark.parametrize("level", LEVELS)
def test_softcap_of_zero_infinity_and_nan(level: str) -> None:
    x = np.array([[0, -0.0, np.inf, -np.inf, np.nan]], np.float32)
    got = CpuOps(level, 1).softcap(x, 30.0)[0]
    np.testing.assert_array_equal(got, [0, 0, 30, -30, np.nan])


@pytest.mark.parametrize("level", LEVELS)
def test_neither_place_batch_nor_threads_show(level: str) -> None:
    """A value's result is the same in any lane, piece, row and thread."""
    x = normal(1, 5, 6000) * np.float32(5)
    ops = CpuOps(level, 3)
    for call in (
        lambda o, v: o.activation(v, "gelu"),
        lambda o, v: o.activation(v, "gelu_tanh"),
        lambda o, v: o.softcap(v, 2.5),
    ):
        whole = call(ops, x)
        alone = call(CpuOps(level, 1), x[3:4, 1001:4004].copy())
        assert (alone == whole[3:4, 1001:4004]).all()
    for kind in KINDS:
        whole = ops.gated_activation(x, kind)
        assert (CpuOps(level, 1).gated_activation(x[4:5].copy(), kind) == whole[4:5]).all()


def test_what_means_nothing_is_refused() -> None:
    ops, x = CpuOps(threads=1), normal(1, 2, 8)
    for backend in (ops, ReferenceOps()):
        with pytest.raises(ValueError, match="'relu6' is unknown; supported: silu, gelu"):
            backend.activation(x, "relu6")  # type: ignore[arg-type]
        for cap in (0.0, -1.0, np.inf, np.nan):
            with pytest.raises(ValueError, match="cap"):
                backend.softcap(x, cap)
    with pytest.raises(ValueError, match="gate_up"):
        ops.gated_activation(normal(1, 2, 7), "gelu")


@pytest.mark.parametrize("level", LEVELS)
def test_relu_is_exact(level: str) -> None:
    ops, reference, x = CpuOps(level, 2), ReferenceOps(), everywhere()[None]
    got = ops.activation(x, "relu")
    assert (got == np.maximum(x, 0)).all()
    assert (got == reference.activation(x, "relu")).all()
    gate, up = normal(1, 7, 96) * np.float32(4), normal(2, 7, 96)
    gated = ops.gated_activation(np.concatenate([gate, up], axis=1), "relu")
    assert (gated == np.maximum(gate, 0) * up).all()
    odd = ops.activation(np.array([[-0.0, np.nan, np.inf, -np.inf]], np.float32), "relu")
    np.testing.assert_array_equal(odd, [[0, np.nan, np.inf, 0]])


@pytest.mark.parametrize("level", LEVELS)
def test_the_square_of_relu_is_rounded_once(level: str) -> None:
    ops, x = CpuOps(level, 2), everywhere()[None]
    x = np.where(np.abs(x) < 1e18, x, np.float32(2))
    x = np.where(np.abs(x) > 1e-18, x, np.float32(0))
    got, positive = ops.activation(x, "relu2"), np.maximum(x, 0)
    assert (got == positive * positive).all()
    assert (got == ReferenceOps().activation(x, "relu2")).all()
    gate, up = normal(1, 7, 96) * np.float32(4), normal(2, 7, 96)
    gated = ops.gated_activation(np.concatenate([gate, up], axis=1), "relu2")
    assert (gated == np.maximum(gate, 0) ** 2 * up).all()
    odd = ops.activation(np.array([[-0.0, np.nan, np.inf, -np.inf]], np.float32), "relu2")
    np.testing.assert_array_equal(odd, [[0, np.nan, np.inf, 0]])


@pytest.mark.parametrize("level", LEVELS)
def test_swiglu_clamped_over_the_whole_range(level: str) -> None:
    """gpt_oss's gate: both halves are clamped, NaN stays, and there is no ungated form."""
    ops, gate = CpuOps(level, 2), everywhere()
    up = np.random.default_rng(3).permutation(gate)
    got = ops.gated_activation(np.concatenate([gate, up])[None], "swiglu_clamped")[0]
    wide, other = np.minimum(gate.astype(np.float64), 7), np.clip(up.astype(np.float64), -7, 7)
    with np.errstate(over="ignore"):
        exact = wide / (1 + np.exp(-1.702 * wide)) * (other + 1)
    # silu's three; the constant and the product before its exponential; the sum and the product.
    limit = (5 + 2 * 1.702 * np.abs(wide)) * UNIT * np.abs(exact)
    kept = (np.abs(exact) > 1e4 * SMALLEST) & (wide > -80)
    error = np.abs(got - exact)
    assert (error[kept] <= limit[kept]).all(), f"{(error[kept] / limit[kept]).max():.2f} of it"
    ends = np.array([[np.nan, 1, np.inf, -np.inf, 1, np.nan, -np.inf, np.inf]], np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        want = ReferenceOps().gated_activation(ends, "swiglu_clamped")
    assert np.array_equal(np.isnan(ops.gated_activation(ends, "swiglu_clamped")), np.isnan(want))
    with pytest.raises(ValueError, match="'swiglu_clamped' is unknown; supported: silu"):
        ops.activation(gate[None], "swiglu_clamped")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["silu", "gelu_tanh", "relu2"])
def test_a_limit_cuts_the_gate_above_and_up_either_way(level: str, kind: Activation) -> None:
    ops, reference = CpuOps(level, 2), ReferenceOps()
    for width in (1, 86, 1030):
        gate, up = np.split(normal(4, 5, 2 * width) * np.float32(4), 2, axis=1)
        x, limit = np.concatenate([gate, up], axis=1), np.float32(2.5)
        got = ops.gated_activation(x, kind, limit=2.5)
        # The gate is cut above alone: its activation has a least value of its own.
        apart = np.minimum(ops.activation(gate.copy(), kind), limit) * np.clip(up, -limit, limit)
        apart[np.abs(apart) < SMALLEST] = 0  # flushed
        assert (got == apart).all()
        want = reference.gated_activation(x, kind, limit=2.5)
        np.testing.assert_allclose(got, want, rtol=3e-6, atol=2e-5)
    ends = np.array([[np.nan, 9, 9, -np.inf, 9, np.nan, -9, np.inf]], np.float32)
    with np.errstate(invalid="ignore"):
        want = reference.gated_activation(ends, "relu2", limit=2.5)
    np.testing.assert_array_equal(want, [[np.nan, np.nan, -6.25, 0]])
    np.testing.assert_array_equal(ops.gated_activation(ends, "relu2", limit=2.5), want)


@pytest.mark.parametrize("make", [CpuOps, ReferenceOps])
def test_limits_that_are_refused(make: type[CpuOps | ReferenceOps]) -> None:
    any_ops, x = make(), normal(1, 2, 8)
    for limit in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=r"limit .* is not in \[0, inf\)"):
            any_ops.gated_activation(x, "silu", limit=limit)
    with pytest.raises(ValueError, match="limit: swiglu_clamped has its own"):
        any_ops.gated_activation(x, "swiglu_clamped", limit=1.0)
