"""Routing has the bits of the reference, experts those of `linear` and each token's sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace.ops.cpu import CpuOps
from headrace.ops.experts import ExpertMLP, Routes, Routing
from headrace.ops.interface import Ops
from headrace.ops.operands import Activation
from headrace.ops.reference import ReferenceOps
from headrace.weights.codecs import get_codec
from headrace.weights.tensors.tensor import Tensor
from tests.ops.cpu.cases import (
    CODECS,
    F32,
    LEVELS,
    QUANTISED,
    matrix,
    named,
    normal,
    vector,
    whole_blocks,
)

REFERENCE = ReferenceOps()

ROUTINGS = (
    Routing(8, 2, "softmax", True),
    Routing(128, 8, "softmax", True),
    Routing(64, 8, "softmax", False),
    Routing(33, 4, "softmax_of_chosen", False),
    Routing(160, 6, "softmax", False, scale=16.0, num_groups=8, chosen_groups=3),
    Routing(256, 8, "sigmoid", True, 1e-20, 2.5, 8, 4, "top2"),
    Routing(384, 8, "sigmoid", True, 1e-20, 2.827),
    Routing(16, 1, "sigmoid", False),
    Routing(16, 2, "sparsemixer", False, jitter=0.01),
    Routing(16, 5, "sparsemixer", True, jitter=0.4),
    Routing(12, 12, "softmax", False, scale=1e-37),
    Routing(6, 2, "sigmoid", True, num_groups=6, chosen_groups=3, group_score="top2"),
    Routing(1, 1, "softmax", True, scale=3e38),
)


def special_logits(routing: Routing) -> F32:
    """Rows with ties, far apart, denormal, and with NaN and infinities in every other place."""
    count = routing.num_experts
    plain = normal(1, 24, count)
    rows = [plain, np.round(plain * 2), plain * 100, plain * np.float32(1e-39), plain * 0]
    for start, value in enumerate((np.nan, np.inf, -np.inf)):
        bad = plain[:4].copy()
        bad[0, start % count :: 2] = value
        bad[1, -1] = value
        bad[2, :] = value
        bad[3, 1:] = value
        rows.append(bad)
    return np.concatenate(rows).astype(np.float32)


@pytest.mark.parametrize("level", LEVELS)
def test_routes_have_the_bits_of_the_reference(level: str) -> None:
    ops = CpuOps(level, 2)
    for routing in ROUTINGS:
        logits = special_logits(routing)
        biases = [None, normal(2, 1, routing.num_experts)[0] * np.float32(0.1)]
        for bias in biases[: 1 if routing.score == "sparsemixer" else 2]:
            with named(routing=routing, bias=bias is not None), np.errstate(over="ignore"):
                got = ops.route(logits, routing, bias=bias)
                want = REFERENCE.route(logits, routing, bias=bias)
                assert (got.experts == want.experts).all()
                assert np.array_equal(got.weights, want.weights, equal_nan=True)


def test_a_route_does_not_depend_on_the_batch_or_the_threads() -> None:
    routing = ROUTINGS[5]
    logits = normal(3, 700, routing.num_experts)
    whole = CpuOps("auto", 1).route(logits, routing)
    for threads in (2, 3):
        again = CpuOps("auto", threads).route(logits, routing)
        assert (again.experts == whole.experts).all() and (again.weights == whole.weights).all()
    alone = CpuOps("auto", 2).route(logits[311:312], routing)
    assert (alone.experts == whole.experts[311]).all()
    assert (alone.weights == whole.weights[311]).all()


def parts_of(
    codec: str, count: int, hidden: int, width: int
) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    """[gate, up] and [down] of every expert."""
    gate_up = [
        [matrix(100 + 2 * e, width, hidden, codec), matrix(101 + 2 * e, width, hidden, codec)]
        for e in range(count)
    ]
    return gate_up, [[matrix(500 + e, hidden, width, codec)] for e in range(count)]


def mlp_of(ops: Ops, codec: str, count: int, hidden: int, width: int, **rest: Any) -> ExpertMLP:
    gate_up, down = parts_of(codec, count, hidden, width)
    rest = {"activation": "silu", **rest}
    return ExpertMLP(ops.expert_weight(gate_up), ops.expert_weight(down), **rest)


def routes_of(tokens: int, count: int, chosen: int, seed: int = 7) -> Routes:
    """Distinct experts of each token, the last expert the choice of none; token t's are its own."""
    experts = np.empty((tokens, chosen), np.int32)
    for token in range(tokens):
        order = np.random.default_rng([seed, token]).permutation(count - 1)
        experts[token] = order[:chosen]
    return Routes(experts, normal(seed, tokens, chosen))


def taken(routes: Routes, rows: slice) -> Routes:
    return Routes(routes.experts[rows].copy(), routes.weights[rows].copy())


def one_by_one(
    ops: Ops,
    x: F32,
    mlp: ExpertMLP,
    weights: tuple[list[Any], list[Any]],
    routes: Routes,
    residual: F32,
    scale: float,
) -> F32:
    """The definition, by `linear` and `gated_activation`; weights: a LinearWeight per expert."""
    tokens, chosen = routes.experts.shape
    total = np.zeros((tokens, mlp.down.out_features), np.float32)
    for choice in range(chosen):
        part = np.empty_like(total)
        for expert in np.unique(routes.experts[:, choice]).tolist():
            (rows,) = np.nonzero(routes.experts[:, choice] == expert)
            taken_rows = x[rows]
            if mlp.weigh_input:
                taken_rows = taken_rows * routes.weights[rows, choice, None]
            wide = ops.linear(taken_rows, weights[0][expert])
            inner = ops.gated_activation(wide, mlp.activation, limit=mlp.limit)
            part[rows] = ops.linear(inner, weights[1][expert])
        if not mlp.weigh_input:
            part = routes.weights[:, choice, None] * part
        total = total + part if choice else part
    return total * np.float32(scale) + residual


def check_definition(level: str, codec: str, tokens: int, **rest: Any) -> None:
    """Experts of a level and codec, some with few rows and some with many, and one with none."""
    ops = CpuOps(level, 2)
    hidden, width = whole_blocks(codec, 72), whole_blocks(codec, 40)
    gate_up, down = parts_of(codec, 5, hidden, width)
    biases = [[vector(30 + e, width), None] for e in range(5)]
    mlp = ExpertMLP(
        ops.expert_weight(gate_up, bias=biases),
        ops.expert_weight(down, bias=[[vector(40 + e, hidden)] for e in range(5)]),
        **{"activation": "silu", **rest},
    )
    apart = (
        [ops.linear_weight(parts, bias=bias) for parts, bias in zip(gate_up, biases, strict=True)],
        [ops.linear_weight(parts, bias=[vector(40 + e, hidden)]) for e, parts in enumerate(down)],
    )
    x, residual = normal(8, tokens, hidden), normal(9, tokens, hidden)
    routes = routes_of(tokens, 5, 2)
    routes.experts[: tokens // 2] = [3, 0]  # two experts with many rows
    got = ops.experts(x, mlp, routes, residual=residual, scale=0.7)
    want = one_by_one(ops, x, mlp, apart, routes, residual, 0.7)
    with named(codec=codec, tokens=tokens, **rest):
        assert (got == want).all(), f"{(got != want).sum()} of {got.size}"


@pytest.mark.computes("experts", "cpu", "bits", kinds=CODECS)
@pytest.mark.parametrize("level", LEVELS)
def test_experts_have_the_bits_of_linear(level: str) -> None:
    for codec in CODECS:
        check_definition(level, codec, 1)
        check_definition(level, codec, 44)


@pytest.mark.parametrize("level", LEVELS)
def test_weights_of_the_input_and_other_activations(level: str) -> None:
    kinds: tuple[Activation, ...] = ("gelu", "gelu_tanh", "relu", "swiglu_clamped")
    for codec in ("F32", "BF16", "Q8_0"):
        for kind in kinds:
            check_definition(level, codec, 9, activation=kind)
        check_definition(level, codec, 44, weigh_input=True)
        check_definition(level, codec, 9, limit=0.75)


def check_tokens_alone(level: str, codec: str, sizes: tuple[int, ...]) -> None:
    hidden, width, tokens = whole_blocks(codec, 96), whole_blocks(codec, 64), 150
    x, residual = normal(11, tokens, hidden), normal(12, tokens, hidden)
    routes = routes_of(tokens, 9, 3)
    routes.experts[60:130, 0] = 7
    results = []
    for threads in (1, 2, 3):
        ops = CpuOps(level, threads)
        mlp = mlp_of(ops, codec, 9, hidden, width)
        whole = ops.experts(x, mlp, routes, residual=residual)
        results.append(whole)
        for size in sizes:
            for start in (0, 61, tokens - size):
                part = slice(start, start + size)
                alone = ops.experts(
                    x[part].copy(), mlp, taken(routes, part), residual=residual[part].copy()
                )
                assert (alone == whole[part]).all(), (codec, threads, size, start)
    assert (results[0] == results[1]).all() and (results[0] == results[2]).all(), codec


@pytest.mark.parametrize("level", LEVELS)
def test_a_token_does_not_depend_on_the_batch_or_the_threads(level: str) -> None:
    for codec in ("F32", "BF16", "Q8_0", "MXFP4"):
        check_tokens_alone(level, codec, (1, 40))


@pytest.mark.matrix
@pytest.mark.parametrize("level", LEVELS)
def test_no_number_of_tokens_shows(level: str) -> None:
    for codec in CODECS:
        check_tokens_alone(level, codec, (1, 2, 8, 17, 33, 80))


@pytest.mark.long
def test_passes_over_very_many_tokens_do_not_show() -> None:
    """A batch whose rows do not fit in the memory of one pass."""
    ops = CpuOps("auto", 2)
    mlp = mlp_of(ops, "F32", 3, 32, 16)
    tokens = 700_000
    x = np.tile(normal(13, 50, 32), (tokens // 50, 1))
    few = routes_of(50, 3, 1)
    routes = Routes(
        np.tile(few.experts, (tokens // 50, 1)), np.tile(few.weights, (tokens // 50, 1))
    )
    got = ops.experts(x, mlp, routes)
    want = ops.experts(x[:50].copy(), mlp, few)
    assert (got.reshape(-1, 50, 32) == want).all()


@pytest.mark.parametrize("level", LEVELS)
def test_agrees_with_the_reference(level: str) -> None:
    ops = CpuOps(level, 2)
    for codec in ("F32", "BF16", "Q8_0", "Q4_K", "MXFP4"):
        hidden, width = whole_blocks(codec, 64), whole_blocks(codec, 96)
        x, routes = normal(14, 6, hidden), routes_of(6, 4, 2)
        got = ops.experts(x, mlp_of(ops, codec, 4, hidden, width), routes)
        want = REFERENCE.experts(x, mlp_of(REFERENCE, codec, 4, hidden, width), routes)
        # Rounding the inner values of quantised kinds to 8 bits may fall to the other side.
        limit = 1e-5 if codec not in QUANTISED else 0.02
        limit = 0.005 if codec == "BF16" else limit
        with named(codec=codec):
            assert np.abs(got - want).max() <= limit * np.abs(want).max()


@pytest.mark.parametrize("level", LEVELS)
def test_rows_of_gate_and_up_may_lie_in_turns(level: str) -> None:
    """As in gpt_oss's checkpoints: the order of rows is applied while packing."""
    ops = CpuOps(level, 2)
    kind = get_codec("MXFP4")
    gate, up = matrix(1, 40, 64, "MXFP4"), matrix(2, 40, 64, "MXFP4")
    data = np.stack([gate.data, up.data], axis=1).reshape(80, -1)
    both = Tensor("gate_up", (80, 64), kind, data)
    order = np.concatenate([np.arange(0, 80, 2), np.arange(1, 80, 2)]).astype(np.int32)
    down = ops.expert_weight([[matrix(3, 64, 40, "F32")]] * 2)
    x, routes = normal(15, 5, 64), Routes(np.ones((5, 1), np.int32), np.ones((5, 1), np.float32))
    results = [
        ops.experts(x, ExpertMLP(ops.expert_weight([parts] * 2), down, "silu"), routes)
        for parts in ([both.select_rows(order)], [gate, up])
    ]
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize("level", LEVELS)
def test_experts_that_no_token_chose_are_not_multiplied(level: str) -> None:
    """NaN in all others, and in the rows of tokens with NaN, shows nowhere else."""
    ops = CpuOps(level, 2)
    kind = get_codec("F32")

    def filled(seed: int, out: int, width: int, expert: int) -> Tensor:
        values = normal(seed, out, width) * np.float32(np.nan if expert in (0, 2) else 1)
        return Tensor("w", (out, width), kind, kind.encode(values))

    mlp = ExpertMLP(
        ops.expert_weight([[filled(1, 24, 40, e), filled(2, 24, 40, e)] for e in range(4)]),
        ops.expert_weight([[filled(3, 40, 24, e)] for e in range(4)]),
        "silu",
    )
    x = normal(16, 3, 40)
    routes = Routes(np.array([[1, 3], [3, 1], [1, 3]], np.int32), normal(17, 3, 2))
    got = ops.experts(x, mlp, routes)
    assert np.isfinite(got).all()
    x[1, 5] = np.nan
    spoilt = ops.experts(x, mlp, routes)
    assert np.isnan(spoilt[1]).all() and (spoilt[[0, 2]] == got[[0, 2]]).all()
    routes.weights[2] = np.nan
    spoilt = ops.experts(x, mlp, routes)
    assert np.isnan(spoilt[2]).all() and (spoilt[0] == got[0]).all()


def test_an_expert_may_be_chosen_twice_and_a_batch_be_empty() -> None:
    ops = CpuOps("auto", 2)
    mlp = mlp_of(ops, "F32", 3, 32, 16)
    x = normal(18, 2, 32)
    twice = ops.experts(x, mlp, Routes(np.ones((2, 2), np.int32), np.ones((2, 2), np.float32)))
    once = ops.experts(x, mlp, Routes(np.ones((2, 1), np.int32), np.ones((2, 1), np.float32)))
    assert (twice == once + once).all()
    routes = ops.route(np.empty((0, 3), np.float32), Routing(3, 2, "softmax", True))
    assert routes.experts.shape == routes.weights.shape == (0, 2)
    assert ops.experts(np.empty((0, 32), np.float32), mlp, routes).shape == (0, 32)


def test_packed_experts_have_the_size_of_their_matrices() -> None:
    ops = CpuOps("auto", 2)
    gate_up, down = parts_of("Q8_0", 3, 64, 32)
    weight = ops.expert_weight(gate_up)
    assert (weight.num_experts, weight.out_features, weight.in_features) == (3, 64, 64)
    assert weight.codec == "Q8_0"
    assert weight.nbytes == 3 * 64 * 2 * 34
    assert ops.expert_weight(down).nbytes == 3 * 64 * 34
    # Panels of 16 outputs: each expert ends with whole ones.
    ragged = ops.expert_weight([[matrix(1, 17, 32)]] * 3)
    assert (ragged.out_features, ragged.nbytes) == (17, 3 * 32 * 32 * 4)


def test_what_does_not_fit_is_refused() -> None:
    ops = CpuOps("auto", 1)
    mlp = mlp_of(ops, "F32", 3, 32, 16)
    x, routes = normal(1, 2, 32), Routes(np.array([[0, 1], [1, 2]], np.int32), normal(2, 2, 2))
    for bad, message in (
        (routes._replace(experts=routes.experts + np.int32(1)), r"expert 3 is not in \[0, 3\)"),
        (routes._replace(experts=routes.experts - np.int32(1)), r"expert -1 is not in \[0, 3\)"),
        (routes._replace(experts=routes.experts.astype(np.int64)), "expert must be .* int32"),
        (routes._replace(experts=routes.experts[:1]), "expert: dimension 0 is 1, must be 2"),
        (routes._replace(weights=normal(2, 2, 1)), "weights of routes: dimension 1 is 1"),
        (Routes(np.zeros((2, 0), np.int32), np.zeros((2, 0), np.float32)),
         r"experts per token 0 is not in \[1, 65536\]"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            ops.experts(x, mlp, bad)
    with pytest.raises(ValueError, match="x: dimension 1 is 31, must be 32"):
        ops.experts(normal(1, 2, 31), mlp, routes)
    with pytest.raises(ValueError, match="residual: dimension 0 is 1, must be 2"):
        ops.experts(x, mlp, routes, residual=normal(1, 1, 32))
    unknown = ExpertMLP(mlp.gate_up, mlp.down, "tanh")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'tanh' is unknown; .*relu, relu2, swiglu_clamped"):
        ops.experts(x, unknown, routes)
    with pytest.raises(ValueError, match=r"limit -1.* is not in \[0, inf\)"):
        ops.experts(x, ExpertMLP(mlp.gate_up, mlp.down, "silu", limit=-1.0), routes)
    part = matrix(1, 16, 32)
    for parts, message in (
        ([], r"0 experts: their number is not in \[1, 65536\]"),
        ([[part], [part, part]], "experts of one layer must be alike"),
        ([[part], [matrix(1, 16, 32, "BF16")]], "experts of one layer must be alike"),
        ([[]], "takes matrices"),
    ):
        with pytest.raises(ValueError, match=message):
            ops.expert_weight(parts)
    with pytest.raises(ValueError, match="biases of 2 experts for 1"):
        ops.expert_weight([[part]], bias=[[None], [None]])
    with pytest.raises(ValueError, match="2 biases for 1 matrices"):
        ops.expert_weight([[part]], bias=[[None, None]])
    with pytest.raises(ValueError, match="does not fit"):
        ops.expert_weight([[part]], bias=[[vector(1, 15)]])
    routing = Routing(3, 2, "softmax", True)
    with pytest.raises(ValueError, match="logits: dimension 1 is 4, must be 3"):
        ops.route(normal(1, 2, 4), routing)
    with pytest.raises(ValueError, match="bias: dimension 0 is 4, must be 3"):
        ops.route(normal(1, 2, 3), routing, bias=normal(1, 1, 4)[0])
    with pytest.raises(ValueError, match="bias nan is not in"):
        ops.route(normal(1, 2, 3), routing, bias=np.array([0, np.nan, 0], np.float32))
    with pytest.raises(ValueError, match="sparsemixer takes no selection bias"):
        ops.route(normal(1, 2, 3), Routing(3, 2, "sparsemixer", False), bias=normal(1, 1, 3)[0])
