"""Routing and experts on the torch backend."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.ops.experts import Routing
from headrace.ops.interface import Ops
from headrace.ops.reference import ReferenceOps
from headrace.ops.reference.arithmetic import round_bf16
from tests.ops.cpu.cases import CODECS, named, normal, whole_blocks
from tests.ops.cpu.test_experts import (
    ROUTINGS,
    mlp_of,
    one_by_one,
    parts_of,
    routes_of,
    special_logits,
    taken,
)

pytest.importorskip("torch", reason="the torch backend needs PyTorch")
from tests.ops.torch.on_host import torch_ops

pytestmark = pytest.mark.torch

REFERENCE = ReferenceOps()
EXPERTS = ("F32", "BF16", "Q8_0", "Q4_K", "MXFP4")
"""With all that experts may be; every kind is computed as most of them are."""


@pytest.fixture(scope="module")
def ops() -> Ops:
    return torch_ops()


def test_routes_have_the_bits_of_the_reference(ops: Ops) -> None:
    for routing in ROUTINGS:
        logits, factors = special_logits(routing), normal(3, 1, routing.num_experts)[0]
        biases = [None, normal(2, 1, routing.num_experts)[0] * np.float32(0.1)]
        for bias in biases[: 1 if routing.score == "sparsemixer" else 2]:
            with named(routing=routing, bias=bias is not None), np.errstate(over="ignore"):
                got = ops.route(logits, routing, bias=bias, factors=factors)
                want = REFERENCE.route(logits, routing, bias=bias, factors=factors)
                assert (got.experts == want.experts).all()
                assert np.array_equal(got.weights, want.weights, equal_nan=True)


@pytest.mark.computes("experts", "torch", "bits", kinds=CODECS)
@pytest.mark.parametrize("rest", [{}, {"weigh_input": True}, {"activation": "swiglu_clamped"}])
def test_experts_have_the_bits_of_linear(ops: Ops, rest: dict[str, object]) -> None:
    for codec in EXPERTS if rest else CODECS:
        hidden, width = whole_blocks(codec, 72), whole_blocks(codec, 40)
        mlp = mlp_of(ops, codec, 5, hidden, width, **rest)
        apart = tuple(
            [ops.linear_weight(parts) for parts in of] for of in parts_of(codec, 5, hidden, width)
        )
        x, residual = normal(8, 20, hidden), normal(9, 20, hidden)
        routes = routes_of(20, 5, 2)
        got = ops.experts(x, mlp, routes, residual=residual, scale=0.7)
        want = one_by_one(ops, x, mlp, apart, routes, residual, 0.7)  # type: ignore[arg-type]
        with named(codec=codec):
            assert (got == want).all()
            for at in (0, 13):
                part = slice(at, at + 3)
                alone = ops.experts(
                    x[part].copy(), mlp, taken(routes, part), residual=residual[part].copy(),
                    scale=0.7,
                )  # fmt: skip
                assert (alone == got[part]).all()


def test_agrees_with_the_reference(ops: Ops) -> None:
    for codec in ("F32", "BF16", "Q8_0", "Q4_K", "MXFP4"):
        hidden, width = whole_blocks(codec, 64), whole_blocks(codec, 96)
        x, routes = normal(14, 6, hidden), routes_of(6, 4, 2)
        got = ops.experts(x, mlp_of(ops, codec, 4, hidden, width), routes)
        want = REFERENCE.experts(x, mlp_of(REFERENCE, codec, 4, hidden, width), routes)
        # Rounding the inner values may fall to the other side: by 2^-8 of one, or 1 / 127 of the
        # largest of its block.
        inner = {"F32": 0.0, "BF16": 2.0**-8}.get(codec, 1 / 127)
        limit = (hidden + width + 8) * 2.0**-24 * 4 + inner
        with named(codec=codec):
            assert np.abs(got - want).max() <= limit * np.abs(want).max()


def test_bf16_rounds_what_meets_it(ops: Ops) -> None:
    x, routes = normal(15, 5, 64), routes_of(5, 4, 2)
    mlp = mlp_of(ops, "BF16", 4, 64, 96)
    assert (ops.experts(round_bf16(x), mlp, routes) == ops.experts(x, mlp, routes)).all()


def test_what_does_not_fit_is_refused(ops: Ops) -> None:
    mlp = mlp_of(ops, "F32", 3, 64, 32)
    x, routes = normal(16, 4, 64), routes_of(4, 3, 2)
    routes.experts[2, 1] = 3
    with pytest.raises(ValueError, match=r"expert 3 is not in \[0, 3\)"):
        ops.experts(x, mlp, routes)
    with pytest.raises(ValueError, match=r"experts of routes have shape \(4, 2\), x has 3 rows"):
        ops.experts(x[:3].copy(), mlp, routes)
    with pytest.raises(ValueError, match="5 factors for 4 experts"):
        ops.route(normal(1, 2, 4), Routing(4, 2, "softmax", True), factors=normal(1, 1, 5)[0])
    with pytest.raises(ValueError, match="takes no selection bias"):
        ops.route(normal(1, 2, 4), Routing(4, 2, "sparsemixer", True), bias=normal(1, 1, 4)[0])
    assert ops.experts(x[:0], mlp, taken(routes, slice(0))).shape == (0, 64)
