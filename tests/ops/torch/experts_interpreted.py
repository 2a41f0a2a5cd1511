"""Experts by the kernels, all of a batch in one launch: the bits of `linear` where sums are exact,
and within the bound of the reference; run as products_interpreted.py is.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headrace.ops.experts import Routes
from headrace.ops.reference import ReferenceOps
from headrace.ops.torch import mixtures
from headrace.ops.torch.triton import products
from headrace.ops.torch.triton.kinds import KINDS
from headrace.ops.torch.triton.products import Groups
from tests.ops.cpu.cases import matrix, named, normal, vector, whole_blocks
from tests.ops.cpu.test_experts import mlp_of, one_by_one, parts_of, routes_of, taken
from tests.ops.torch.on_host import DEVICE, kernel_ops, torch_ops

pytestmark = pytest.mark.torch

REFERENCE = ReferenceOps()


@pytest.fixture(autouse=True)
def only_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not computed in one launch fails, but by the plain backend of a test."""
    plain = mixtures._one_by_one

    def refused(x: torch.Tensor, mlp, routes):  # type: ignore[no-untyped-def]
        assert not mlp.gate_up.packed.matrix.kernels, "experts one by one"
        return plain(x, mlp, routes)

    monkeypatch.setattr(mixtures, "_one_by_one", refused)


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes as long for a program whatever the outputs of its tile."""
    if DEVICE == "cpu":
        for name in ("FEW", "MANY"):
            tiling = getattr(products, name)._replace(outs=256)
            monkeypatch.setattr(products, name, tiling)


@pytest.mark.computes("experts", "triton", "bound", kinds=KINDS)
@pytest.mark.parametrize("codec", KINDS)
def test_agree_with_the_plain_backend_and_do_not_depend_on_other_tokens(codec: str) -> None:
    ops, plain = kernel_ops(), torch_ops()
    hidden, width = whole_blocks(codec, 72), whole_blocks(codec, 40)
    x, routes = normal(14, 5, hidden), routes_of(5, 3, 2)
    mlp = mlp_of(ops, codec, 3, hidden, width)
    got = ops.experts(x, mlp, routes)
    want = plain.experts(x, mlp_of(plain, codec, 3, hidden, width), routes)
    # Rounding the inner values may fall to the other side: by 2^-8 of one, or 1 / 127 of the
    # largest of its block.
    inner = 2.0**-8 if KINDS[codec].floats else 1 / 127
    limit = (hidden + width + 8) * 2.0**-24 * 4 + inner
    assert np.abs(got - want).max() <= limit * np.abs(want).max()
    if DEVICE == "cpu" and KINDS[codec].floats:
        return  # NumPy's product, in whose place the interpreter is, depends on the row of a tile.
    part = slice(2, 4)
    assert (ops.experts(x[part].copy(), mlp, taken(routes, part)) == got[part]).all()


@pytest.mark.parametrize("rest", [{}, {"weigh_input": True, "activation": "swiglu_clamped"}])
def test_kinds_of_bytes_have_the_bits_of_linear(rest: dict[str, object]) -> None:
    """Of more tokens than a tile has rows too, with experts that none or all have chosen."""
    ops = kernel_ops()
    for codec, tokens in (("Q8_0", 70), ("MXFP4", 20)):
        hidden, width = whole_blocks(codec, 72), whole_blocks(codec, 40)
        mlp = mlp_of(ops, codec, 3, hidden, width, **rest)
        apart = tuple(
            [ops.linear_weight(parts) for parts in of] for of in parts_of(codec, 3, hidden, width)
        )
        x, residual = normal(8, tokens, hidden), normal(9, tokens, hidden)
        routes = routes_of(tokens, 3, 2)
        got = ops.experts(x, mlp, routes, residual=residual, scale=0.7)
        want = one_by_one(ops, x, mlp, apart, routes, residual, 0.7)  # type: ignore[arg-type]
        with named(codec=codec):
            assert (got == want).all()
    assert ops.experts(x[:0], mlp, taken(routes, slice(0))).shape == (0, hidden)


def test_kinds_and_biases_of_both_projections_are_their_own() -> None:
    ops, plain = kernel_ops(), torch_ops()
    x, routes = normal(3, 5, 64), Routes(np.tile(np.int32([2, 2]), (5, 1)), normal(4, 5, 2))
    results = []
    for each in (ops, plain):
        gate_up = [[matrix(e, 32, 64, "MXFP4"), matrix(9 + e, 32, 64, "MXFP4")] for e in range(3)]
        down = [[matrix(20 + e, 64, 32, "F8_E4M3")] for e in range(3)]
        weights = (
            each.expert_weight(gate_up, bias=[[vector(e, 32), None] for e in range(3)]),
            each.expert_weight(down, bias=[[vector(9 + e, 64)] for e in range(3)]),
        )
        mlp = mixtures.ExpertMLP(*weights, activation="silu")
        results.append(each.experts(x, mlp, routes))
    assert np.abs(results[0] - results[1]).max() <= 2.0**-7 * np.abs(results[1]).max()


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_every_place_is_in_one_tile_of_its_matrix(rows: int) -> None:
    rng = np.random.default_rng(rows)
    for places, count in ((1, 8), (40, 3), (64, 64), (100, 7)):
        of = torch.from_numpy(rng.integers(0, count, places).astype(np.int32))
        groups = Groups.of(of, count, rows)
        found = []
        for matrix_, begin, end in groups.tiles.T.tolist():
            of_tile = groups.order[begin : min(begin + rows, end)]
            assert (of[of_tile.long()] == matrix_).all()
            found += of_tile.tolist()
        assert sorted(found) == list(range(places))
