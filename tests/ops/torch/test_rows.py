"""Norms, activations, rotation and the small operations of the torch backend."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headrace.ops.interface import Ops
from headrace.ops.kv import AttentionShape
from headrace.ops.operands import Activation, Norm
from headrace.ops.reference import ReferenceOps
from tests.ops.cpu.cases import UNIT, normal
from tests.ops.cpu.test_activations import EXACT, KINDS, everywhere, tail

torch = pytest.importorskip("torch", reason="the torch backend needs PyTorch")
from headrace.ops.torch.rounding import quotient  # noqa: E402
from headrace.ops.torch.sums_and_products import tree_sum  # noqa: E402
from tests.ops.torch.bounds import FUNCTION, of_norm  # noqa: E402
from tests.ops.torch.on_host import DEVICE, torch_ops  # noqa: E402

pytestmark = pytest.mark.torch

REFERENCE = ReferenceOps()
SMALLEST = 2.0**-126


@pytest.fixture(scope="module")
def ops() -> Ops:
    return torch_ops()


NORMS = [
    Norm(normal(1, 1, 172)[0], 1e-6),
    Norm(normal(2, 1, 172)[0], 1e-5, "rms", normal(3, 1, 172)[0]),
    Norm(normal(4, 1, 172)[0], 1e-5, "layer"),
    Norm(normal(5, 1, 172)[0], 1e-5, "layer", normal(6, 1, 172)[0]),
]


@pytest.mark.parametrize("norm", NORMS, ids=["rms", "rms-bias", "layer", "layer-bias"])
def test_norms(ops: Ops, norm: Norm) -> None:
    x, residual = normal(7, 19, 172) + np.float32(0.5), normal(8, 19, 172)
    want = REFERENCE.norm(x, norm)
    got = ops.norm(x, norm)
    assert (np.abs(got - want) <= of_norm(x, norm, want)).all()
    assert (ops.norm(x, norm, residual=residual) == got + residual).all()
    assert (ops.norm(x[4:5].copy(), norm) == got[4:5]).all()
    wide = np.concatenate([normal(9, 19, 30), x, normal(10, 19, 5)], axis=1)
    changed = wide.copy()
    ops.norm_columns(changed, 30, norm)
    assert (changed[:, 30:202] == got).all()
    assert (changed[:, :30] == wide[:, :30]).all() and (changed[:, 202:] == wide[:, 202:]).all()


@pytest.mark.parametrize("norm", NORMS, ids=["rms", "rms-bias", "layer", "layer-bias"])
def test_norms_of_groups_of_columns_are_those_of_each(ops: Ops, norm: Norm) -> None:
    x = normal(11, 6, 172)
    changed = x.copy()
    ops.norm_columns(changed, 0, norm, groups=4)
    for at in range(0, 172, 43):
        part = slice(at, at + 43)
        bias = None if norm.bias is None else norm.bias[part]
        own = Norm(norm.weight[part], norm.eps, norm.kind, bias)
        assert (changed[:, part] == ops.norm(x[:, part].copy(), own)).all()


def test_a_sum_is_the_same_in_any_company() -> None:
    for width in (1, 2, 3, 64, 77, 4096):
        x = torch.from_numpy(normal(12, 40, width)).to(DEVICE)
        whole = tree_sum(x)
        assert torch.equal(tree_sum(x[7:8]), whole[7:8])
        error = (whole.double() - x.double().sum(1)).abs()
        assert (error <= math.ceil(math.log2(width) + 1) * UNIT * x.double().abs().sum(1)).all()
    assert tree_sum(torch.empty((3, 0))).tolist() == [0, 0, 0]


def test_quotients_are_rounded_once() -> None:
    """Of a number and a tensor PyTorch's own are rounded twice."""
    x = np.abs(normal(13, 50, 400)) + np.float32(0.01)
    given = torch.from_numpy(x).to(DEVICE)
    assert (quotient(127.0, given, given).cpu().numpy() == np.float32(127) / x).all()
    assert (quotient(given, 127.0, given).cpu().numpy() == x / np.float32(127)).all()


# Of functions, constants and sums; and of an exponential's argument for each unit of its size.
ROUNDINGS: dict[Activation, tuple[float, float]] = {
    "silu": (FUNCTION + 3, 0), "gelu": (FUNCTION + 3, 4), "gelu_tanh": (FUNCTION + 3, 7),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_activations_over_the_whole_range(ops: Ops, kind: Activation) -> None:
    x = everywhere()
    x = x[np.abs(x) < 1e12]
    want = EXACT[kind](x.astype(np.float64))
    got = ops.activation(x[None], kind)[0]
    constant, of_size = ROUNDINGS[kind]
    limit = (constant + of_size * tail(kind, x.astype(np.float64))) * UNIT * np.abs(want)
    # Products that leave the range of normal numbers lose bits, or are zero.
    assert (np.abs(got - want) <= limit + 16 * SMALLEST).all()


def test_relu_and_its_square(ops: Ops) -> None:
    x = np.concatenate([normal(13, 4, 60), np.full((4, 1), -0.0, np.float32)], axis=1)
    assert (ops.activation(x, "relu") == REFERENCE.activation(x, "relu")).all()
    assert (ops.activation(x, "relu2") == REFERENCE.activation(x, "relu2")).all()
    with pytest.raises(ValueError, match="activation 'tanh' is unknown"):
        ops.activation(x, "tanh")  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0.0, 0.75])
@pytest.mark.parametrize("kind", [*KINDS, "relu", "relu2", "swiglu_clamped"])
def test_gated_activations(ops: Ops, kind: Activation, limit: float) -> None:
    if kind == "swiglu_clamped" and limit:
        with pytest.raises(ValueError, match="swiglu_clamped has its own"):
            ops.gated_activation(normal(1, 1, 2), kind, limit=limit)
        return
    x = normal(14, 9, 128) * np.float32(3)
    want = REFERENCE.gated_activation(x, kind, limit=limit)
    got = ops.gated_activation(x, kind, limit=limit)
    # No argument of an exponential is beyond 40 here. The reference has 1 + erf and 1 + tanh, which
    # cancel in float64.
    cancelled = 2.0**-51 * np.abs(x[:, :64] * x[:, 64:])
    limits = (FUNCTION + 6 + 8 * 40) * UNIT * np.abs(want) + SMALLEST + cancelled
    assert (np.abs(got - want) <= limits).all()
    assert (ops.gated_activation(x[3:4].copy(), kind, limit=limit) == got[3:4]).all()


def test_gates_are_refused_where_they_mean_nothing(ops: Ops) -> None:
    with pytest.raises(ValueError, match="odd width 3"):
        ops.gated_activation(normal(1, 1, 3), "silu")
    with pytest.raises(ValueError, match=r"limit -1 is not in \[0, inf\)"):
        ops.gated_activation(normal(1, 1, 4), "silu", limit=-1)


def test_softcap(ops: Ops) -> None:
    x = normal(15, 8, 100) * np.float32(40)
    want = REFERENCE.softcap(x, 30.0)
    assert (np.abs(ops.softcap(x, 30.0) - want) <= (FUNCTION + 3) * UNIT * np.abs(want)).all()
    with pytest.raises(ValueError, match="cap 0"):
        ops.softcap(x, 0.0)


@pytest.mark.parametrize("with_norm", [False, True])
@pytest.mark.parametrize("rotary_dim", [16, 24])
def test_rope(ops: Ops, with_norm: bool, rotary_dim: int) -> None:
    shape = AttentionShape(4, 2, 24, 1.0)
    frequencies = 10000.0 ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
    tables = [each.rope_table(frequencies, 300, attention_factor=1.1) for each in (ops, REFERENCE)]
    norms = {"q_norm": Norm(normal(1, 1, 24)[0], 1e-6), "k_norm": Norm(normal(2, 1, 24)[0], 1e-6)}
    positions = np.array([0, 7, 299, 7, 41], np.int32)
    x = normal(16, 5, shape.row_width)
    got, want = x.copy(), x.copy()
    ops.rope(got, shape, tables[0], positions, **norms if with_norm else {})
    REFERENCE.rope(want, shape, tables[1], positions, **norms if with_norm else {})
    # Two products and their sum, of values whose norm has some roundings too.
    heads = np.abs(x) if not with_norm else np.full_like(x, np.abs(want).max())
    size = heads[:, : 6 * 24].reshape(5, 6, 24).max(axis=2, keepdims=True)
    error = np.abs(got - want)[:, : 6 * 24].reshape(5, 6, 24)
    assert (error <= (4 + (8 if with_norm else 0)) * UNIT * 2 * 1.1 * size).all()
    assert (got[:, 6 * 24 :] == x[:, 6 * 24 :]).all()
    if not with_norm:
        untouched = got[:, : 6 * 24].reshape(5, 6, 24)[:, :, rotary_dim:]
        assert (untouched == x[:, : 6 * 24].reshape(5, 6, 24)[:, :, rotary_dim:]).all()


def test_small_operations_are_exact(ops: Ops) -> None:
    x, y = normal(17, 6, 12), normal(18, 6, 12)
    rows = np.array([5, 0, 5], np.int32)
    assert (ops.take_rows(x, rows) == x[rows]).all()
    assert (ops.concat([x, y]) == REFERENCE.concat([x, y])).all()
    assert (ops.stacked([x, y]) == REFERENCE.stacked([x, y])).all()
    assert (ops.columns(x, 3, 7) == x[:, 3:7]).all()
    assert (ops.added(x, y) == x + y).all()
    assert (ops.widened(x, 20) == REFERENCE.widened(x, 20)).all()
    places = np.array([*range(12)][::-1], np.int64) * 2
    assert (ops.spread(x, places, 30) == REFERENCE.spread(x, places, 30)).all()
    scaled, factors = x.copy(), normal(19, 1, 6)[0]
    ops.scale_rows(scaled, factors, columns=5)
    assert (scaled[:, :5] == x[:, :5] * factors[:, None]).all()
    assert (scaled[:, 5:] == x[:, 5:]).all()
    assert (ops.host(x) == x).all()
    with pytest.raises(ValueError, match="row 6 is not in"):
        ops.take_rows(x, np.array([6], np.int32))


def test_heads_are_multiplied_by_the_sigmoid_of_their_gate(ops: Ops) -> None:
    x, gates = normal(20, 7, 48), normal(21, 7, 6) * np.float32(3)
    got, want = x.copy(), x.copy()
    ops.gate_heads(got, gates)
    REFERENCE.gate_heads(want, gates)
    assert (np.abs(got - want) <= (FUNCTION + 4) * UNIT * np.abs(want)).all()
    with pytest.raises(ValueError, match="gates of 5 heads do not fit rows of 48"):
        ops.gate_heads(x, gates[:, :5].copy())
