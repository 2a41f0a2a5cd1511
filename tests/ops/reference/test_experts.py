"""Routing and experts of the reference, against formulas in float64 written out here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

from headrace.ops.experts import ExpertMLP, RouterScore, Routes, Routing
from headrace.ops.reference import ReferenceOps
from headrace.ops.reference.experts import exp
from headrace.weights.codecs import get_codec
from headrace.weights.tensors.tensor import Tensor

OPS = ReferenceOps()
F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def normal(seed: int, *shape: int) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tensor(values: F32, codec: str = "F32") -> Tensor:
    kind = get_codec(codec)
    return Tensor("w", values.shape, kind, kind.encode(values.reshape(-1, values.shape[-1])))


def softmax(values: F64) -> F64:
    powers: F64 = np.exp(values - values.max())
    shares: F64 = powers / powers.sum()
    return shares


def best_of(rank: list[float], count: int) -> list[int]:
    """The indices of the `count` largest, one at a time, the first of equals."""
    left = dict(enumerate(rank))
    found = []
    for _ in range(count):
        found.append(next(index for index, value in left.items() if value == max(left.values())))
        del left[found[-1]]
    return found


def expected_route(row: F64, routing: Routing, bias: F64) -> tuple[list[int], F64]:
    """One token's experts and weights, by the definitions of the models' papers."""
    k = routing.experts_per_token
    if routing.score == "sparsemixer":
        return sparsemixer(row, routing)
    scores = row
    if routing.score == "softmax":
        scores = softmax(row)
    elif routing.score == "sigmoid":
        scores = 1 / (1 + np.exp(-row))
    rank = (scores + bias).tolist()
    if routing.num_groups > 1:
        size = routing.num_experts // routing.num_groups
        groups = [sorted(rank[start : start + size]) for start in range(0, len(rank), size)]
        of_group = [sum(group[-2:]) if routing.group_score == "top2" else group[-1]
                    for group in groups]  # fmt: skip
        kept = best_of(of_group, routing.chosen_groups)
        rank = [value if e // size in kept else -np.inf for e, value in enumerate(rank)]
    chosen = best_of(rank, k)
    weights = scores[chosen]
    if routing.score == "softmax_of_chosen":
        weights = softmax(weights)
    if routing.normalised:
        weights = weights / (weights.sum() + routing.epsilon)
    return chosen, weights * routing.scale


def sparsemixer(row: F64, routing: Routing) -> tuple[list[int], F64]:
    """Phi-3.5-MoE's choice: each expert in turn, its weight a softmax over those that are close."""
    masked, chosen, weights = row.copy(), [], []
    for _ in range(routing.experts_per_token):
        highest = masked.max()
        far = (highest - row) / np.maximum(np.abs(row), highest) > 2 * routing.jitter
        close = np.where(far, -np.inf, masked)
        chosen.append(int(masked.argmax()))
        weights.append(softmax(close)[chosen[-1]])
        masked[chosen[-1]] = -np.inf
    return chosen, np.array(weights) * routing.scale


ROUTINGS = {
    "mixtral": Routing(8, 2, "softmax", True),
    "qwen3_moe": Routing(128, 8, "softmax", True),
    "olmoe": Routing(64, 8, "softmax", False),
    "granitemoe": Routing(40, 8, "softmax_of_chosen", False),
    "gpt_oss": Routing(32, 4, "softmax_of_chosen", False),
    "deepseek_v2": Routing(160, 6, "softmax", False, scale=16.0, num_groups=8, chosen_groups=3),
    "deepseek_v3": Routing(256, 8, "sigmoid", True, 1e-20, 2.5, 8, 4, "top2"),
    "kimi_k2": Routing(384, 8, "sigmoid", True, 1e-20, 2.827, 1, 1, "top2"),
    "llama4": Routing(16, 1, "sigmoid", False),
    "phimoe": Routing(16, 2, "sparsemixer", False, jitter=0.01),
    "phimoe, wide": Routing(16, 2, "sparsemixer", False, jitter=0.4),
    "every expert": Routing(6, 6, "softmax", False),
    "groups of one": Routing(
        6, 2, "sigmoid", True, num_groups=6, chosen_groups=3, group_score="top2"
    ),
}


@pytest.mark.parametrize("family", ROUTINGS)
@pytest.mark.parametrize("with_bias", [False, True])
def test_the_routing_of_the_families(family: str, with_bias: bool) -> None:
    routing = ROUTINGS[family]
    if routing.score == "sparsemixer":
        with_bias = False  # it has none
    logits = normal(1, 21, routing.num_experts) * np.float32(2)
    bias = normal(2, routing.num_experts) * np.float32(0.1) if with_bias else None
    routes = OPS.route(logits, routing, bias=bias)
    assert routes.experts.dtype == np.int32 and routes.weights.dtype == np.float32
    shift = np.zeros(routing.num_experts) if bias is None else bias.astype(np.float64)
    for row, experts, weights in zip(logits, *routes, strict=True):
        chosen, expected = expected_route(row.astype(np.float64), routing, shift)
        assert experts.tolist() == chosen
        np.testing.assert_allclose(weights, expected, rtol=2.0**-23)


def test_a_bias_is_added_for_the_choice_only() -> None:
    logits = np.array([[3, 2, 1, 0]], np.float32)
    bias = np.array([0, 0, 0, 5], np.float32)
    routing = Routing(4, 2, "sigmoid", False)
    routes = OPS.route(logits, routing, bias=bias)
    assert routes.experts.tolist() == [[3, 0]]
    np.testing.assert_allclose(routes.weights, [[0.5, 1 / (1 + np.exp(-3.0))]], rtol=2.0**-23)


@pytest.mark.parametrize("score", get_args(RouterScore))
def test_ties_go_to_the_lower_index(score: Any) -> None:
    logits = np.array([[1, 2, 2, 1, 2, 1]], np.float32)
    routes = OPS.route(logits, Routing(6, 4, score, False))
    assert routes.experts.tolist() == [[1, 2, 4, 0]]
    grouped = Routing(6, 2, "sigmoid", False, num_groups=3, chosen_groups=1)
    assert OPS.route(logits, grouped).experts.tolist() == [[1, 0]]


@pytest.mark.parametrize("score", get_args(RouterScore))
def test_the_larger_logit_is_chosen_where_scores_are_rounded_to_the_same_number(score: Any) -> None:
    """Sigmoids of 40 and 50 are 1, powers of what is 600 below the largest are 0."""
    logits = np.array([[40, 50, 45, 30], [-600, -700, -650, 0]], np.float32)
    routes = OPS.route(logits, Routing(4, 3, score, False))
    assert routes.experts.tolist() == [[1, 2, 0], [3, 0, 2]]
    if score != "sparsemixer":
        grouped = Routing(4, 1, score, False, num_groups=2, chosen_groups=1)
        assert OPS.route(logits[:1], grouped).experts.tolist() == [[1]]
        later = OPS.route(logits[:1, [0, 3, 2, 1]].copy(), grouped)
        assert later.experts.tolist() == [[3]]
    if score == "sigmoid":
        of_two = Routing(4, 1, score, False, num_groups=2, chosen_groups=1, group_score="top2")
        assert OPS.route(logits[:1], of_two).experts.tolist() == [[1]]
        bias = np.array([0, 0, 0, 1], np.float32)
        assert OPS.route(logits[:1], of_two, bias=bias).experts.tolist() == [[3]]


def test_no_expert_of_another_group_is_chosen_even_where_all_scores_are_low() -> None:
    logits = np.array([[4, -90, 3, 3, -90, 2]], np.float32)
    routing = Routing(6, 2, "softmax", False, num_groups=3, chosen_groups=1)
    assert OPS.route(logits, routing).experts.tolist() == [[0, 1]]


@pytest.mark.parametrize("score", get_args(RouterScore))
def test_logits_that_are_not_finite(score: Any) -> None:
    """-inf is an expert that is never preferred; what holds no order gives weights of NaN."""
    nan, inf = np.nan, np.inf
    logits = np.array(
        [[0, -inf, 1, 2], [0, nan, 1, 2], [0, inf, 1, 2], [-inf] * 4, [nan] * 4], np.float32
    )
    routes = OPS.route(logits, Routing(4, 3, score, True))
    assert routes.experts[0].tolist() == [3, 2, 0]
    assert np.isfinite(routes.weights[0]).all()
    for row in (1, 4):
        assert routes.experts[row].tolist() == [0, 1, 2] and np.isnan(routes.weights[row]).all()
    if score == "sigmoid":
        assert routes.experts[2].tolist() == [1, 3, 2]
        assert routes.experts[3].tolist() == [0, 1, 2] and not routes.weights[3].any()
    else:
        assert np.isnan(routes.weights[2:]).all()
        assert routes.experts[2:].tolist() == [[0, 1, 2]] * 3


def test_an_expert_of_logit_minus_infinity_has_weight_zero() -> None:
    logits = np.array([[1, -np.inf, -np.inf]], np.float32)
    for score in get_args(RouterScore):
        routes = OPS.route(logits, Routing(3, 3, score, True))
        assert routes.experts.tolist() == [[0, 1, 2]]
        assert routes.weights.tolist() == [[1, 0, 0]], score


def test_weights_below_the_least_normal_number_are_zero() -> None:
    logits = np.array([[0, -87, -88, -400, -600]], np.float32)
    weights = OPS.route(logits, Routing(5, 5, "softmax", False)).weights
    assert weights[0, 1] > 0 and not weights[0, 2:].any()


def test_exp_is_within_two_roundings_and_has_the_limits() -> None:
    x = np.concatenate([np.linspace(-499, 499, 4001), [0.0, 1.0, 1e-300, -1e-20]])
    np.testing.assert_allclose(exp(x), np.exp(x), rtol=1e-15)
    assert exp(np.zeros(1)) == 1
    limits = exp(np.array([-501, -np.inf, 501, np.inf, np.nan]))
    assert limits[:4].tolist() == [0, 0, np.inf, np.inf] and np.isnan(limits[4])


def experts_of(count: int, hidden: int, width: int, codec: str, biases: bool = False) -> Any:
    """Gate, up and down of every expert, and their biases."""
    matrices = [
        (normal(10 * e, width, hidden), normal(10 * e + 1, width, hidden),
         normal(10 * e + 2, hidden, width)) for e in range(count)
    ]  # fmt: skip
    vectors: list[Any] = [
        (normal(10 * e + 3, width), normal(10 * e + 4, width), normal(10 * e + 5, hidden))
        for e in range(count)
    ]
    gate_up = OPS.expert_weight(
        [[tensor(gate, codec), tensor(up, codec)] for gate, up, _ in matrices],
        bias=[[tensor(gate), tensor(up)] for gate, up, _ in vectors] if biases else None,
    )
    down = OPS.expert_weight(
        [[tensor(down, codec)] for _, _, down in matrices],
        bias=[[tensor(down)] for _, _, down in vectors] if biases else None,
    )
    decoded: list[Any] = [tuple(tensor(part, codec).to_f32().astype(np.float64) for part in parts)
               for parts in matrices]  # fmt: skip
    if not biases:
        vectors = [tuple(np.zeros_like(part) for part in parts) for parts in vectors]
    return ExpertMLP(gate_up, down, "silu"), decoded, vectors


def silu(gate: F64, up: F64) -> F64:
    gated: F64 = up * gate / (1 + np.exp(-gate))
    return gated


def clamped(gate: F64, up: F64) -> F64:
    gate, up = np.minimum(gate, 7), np.maximum(np.minimum(up, 7), -7)
    gated: F64 = (up + 1) * gate / (1 + np.exp(-1.702 * gate))
    return gated


@pytest.mark.parametrize("gating", [silu, clamped])
@pytest.mark.parametrize("weigh_input", [False, True])
@pytest.mark.parametrize("biases", [False, True])
def test_experts_are_the_weighted_sum_of_their_mlps(
    gating: Callable[[F64, F64], F64], weigh_input: bool, biases: bool
) -> None:
    mlp, matrices, vectors = experts_of(5, 24, 12, "F32", biases)
    mlp = replace(
        mlp, activation="silu" if gating is silu else "swiglu_clamped", weigh_input=weigh_input
    )
    x, residual = normal(90, 7, 24), normal(91, 7, 24)
    routes = OPS.route(normal(92, 7, 5), Routing(5, 3, "softmax", True))
    got = OPS.experts(x, mlp, routes, residual=residual, scale=0.7)
    expected = np.zeros((7, 24))
    for token in range(7):
        for expert, weight in zip(routes.experts[token], routes.weights[token], strict=True):
            row = x[token].astype(np.float64) * (weight if weigh_input else 1)
            (gate, up, down), (of_gate, of_up, of_down) = matrices[expert], vectors[expert]
            result = down @ gating(gate @ row + of_gate, up @ row + of_up) + of_down
            expected[token] += result * (1 if weigh_input else weight)
    np.testing.assert_allclose(got, expected * 0.7 + residual, rtol=1e-5, atol=2e-5)
    plain = OPS.experts(x, mlp, routes)
    np.testing.assert_allclose(plain, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("codec", ["F32", "BF16", "Q8_0", "MXFP4"])
def test_an_expert_has_the_bits_of_linear_and_sums_follow_the_choice(codec: str) -> None:
    hidden, width = 64, 32
    mlp, _, _ = experts_of(4, hidden, width, codec)
    x = normal(93, 9, hidden)
    routes = Routes(np.array([[2, 0], [0, 2], [1, 3]] * 3, np.int32), normal(94, 9, 2))
    dense = {
        expert: OPS.linear(
            OPS.gated_activation(OPS.linear(x, mlp.gate_up.packed[expert]), "silu"),
            mlp.down.packed[expert],
        )
        for expert in range(4)
    }
    for token in range(9):
        (first, second), weights = routes.experts[token], routes.weights[token]
        want = weights[0] * dense[first][token] + weights[1] * dense[second][token]
        got = OPS.experts(x, mlp, routes)[token]
        assert (got == want).all()


def test_a_token_does_not_depend_on_the_others() -> None:
    mlp, _, _ = experts_of(6, 32, 32, "Q8_0")
    x, residual, logits = normal(95, 13, 32), normal(96, 13, 32), normal(97, 13, 6)
    routing = Routing(6, 2, "sigmoid", True, 1e-20, 2.5, 3, 2, "top2")
    routes = OPS.route(logits, routing)
    together = OPS.experts(x, mlp, routes, residual=residual)
    for step in (1, 4):
        for start in range(0, 13, step):
            part = slice(start, start + step)
            alone = OPS.route(logits[part], routing)
            assert (alone.experts == routes.experts[part]).all()
            assert (alone.weights == routes.weights[part]).all()
            got = OPS.experts(x[part], mlp, alone, residual=residual[part])
            assert (got == together[part]).all()


def test_empty_batches_have_empty_results() -> None:
    mlp, _, _ = experts_of(3, 8, 4, "F32")
    routes = OPS.route(np.empty((0, 3), np.float32), Routing(3, 2, "softmax", True))
    assert routes.experts.shape == routes.weights.shape == (0, 2)
    assert OPS.experts(np.empty((0, 8), np.float32), mlp, routes).shape == (0, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_experts": 0}, r"num_experts 0 is not in \[1, 65536\]"),
        ({"num_experts": 1 << 40}, r"num_experts 1099511627776 is not in \[1, 65536\]"),
        ({"experts_per_token": 9}, r"experts_per_token 9 is not in \[1, 8\]"),
        ({"experts_per_token": 0}, r"experts_per_token 0 is not in \[1, 8\]"),
        ({"num_groups": 3}, "num_groups 3 does not divide num_experts 8"),
        ({"num_groups": 4, "chosen_groups": 5}, r"chosen_groups 5 is not in \[1, 4\]"),
        ({"num_groups": 8, "chosen_groups": 1}, r"experts_per_token 2 is not in \[1, 1\]"),
        ({"score": "tanh"}, "score 'tanh' is unknown; supported: softmax, sigmoid"),
        ({"group_score": "mean"}, "group_score 'mean' is unknown; supported: max, top2"),
        ({"epsilon": -1.0}, r"epsilon -1.0 is not in \[0, inf\)"),
        ({"jitter": float("nan")}, r"jitter nan is not in \[0, inf\)"),
        ({"scale": float("inf")}, "scale inf is not a finite number"),
        ({"score": "sparsemixer", "num_groups": 2}, "num_groups 2: sparsemixer knows no groups"),
    ],
)
def test_a_routing_out_of_range_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(Routing(8, 2, "softmax", True), **change)


def test_experts_that_do_not_fit_are_refused() -> None:
    mlp, _, _ = experts_of(3, 8, 4, "F32")
    x, routes = normal(1, 2, 8), Routes(np.array([[0, 1], [1, 2]], np.int32), normal(2, 2, 2))
    part = tensor(normal(3, 4, 8))
    for bad, message in (
        ([], r"0 experts: their number is not in \[1, 65536\]"),
        ([[part], [part, part]], "experts of one layer must be alike: w: F32 4 x 8; w: F32 8 x 8"),
        ([[part], [tensor(normal(3, 4, 8), "BF16")]], "must be alike: w: F32 4 x 8; w: BF16 4 x 8"),
        ([[part, tensor(normal(3, 4, 8), "BF16")]], r"codecs \['BF16', 'F32'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            OPS.expert_weight(bad)
    with pytest.raises(ValueError, match="biases of 2 experts for 1"):
        OPS.expert_weight([[part]], bias=[[None], [None]])
    with pytest.raises(ValueError, match="gate_up has 3 experts, down has 1"):
        ExpertMLP(mlp.gate_up, OPS.expert_weight([[tensor(normal(3, 8, 4))]]), "silu")
    with pytest.raises(ValueError, match="gives 8 values, which is not twice the 8 that down"):
        ExpertMLP(mlp.gate_up, mlp.gate_up, "silu")
    with pytest.raises(ValueError, match="gate_up takes 8 values, down gives 4"):
        ExpertMLP(mlp.gate_up, OPS.expert_weight([[tensor(normal(3, 4, 4))]] * 3), "silu")
    with pytest.raises(ValueError, match=r"expert 3 is not in \[0, 3\)"):
        OPS.experts(x, mlp, Routes(routes.experts + np.int32(1), routes.weights))
    with pytest.raises(ValueError, match=r"x must be float32\[N, 8\]"):
        OPS.experts(normal(1, 2, 9), mlp, routes)
    with pytest.raises(ValueError, match="x has 1 rows"):
        OPS.experts(x[:1], mlp, routes)
    with pytest.raises(ValueError, match=r"weights of routes have shape \(2, 1\)"):
        OPS.experts(x, mlp, Routes(routes.experts, routes.weights[:, :1]))
    with pytest.raises(ValueError, match="residual has 1 rows, x has 2"):
        OPS.experts(x, mlp, routes, residual=x[:1])
    routing = Routing(3, 2, "softmax", True)
    with pytest.raises(ValueError, match=r"logits must be float32\[N, 3\]"):
        OPS.route(normal(1, 2, 4), routing)
    with pytest.raises(ValueError, match=r"bias must be float32\[3\]"):
        OPS.route(normal(1, 2, 3), routing, bias=normal(1, 4))
    with pytest.raises(ValueError, match="bias nan is not a finite number"):
        OPS.route(normal(1, 2, 3), routing, bias=np.array([0, np.nan, 0], np.float32))
    with pytest.raises(ValueError, match="sparsemixer takes no selection bias"):
        OPS.route(normal(1, 2, 3), Routing(3, 2, "sparsemixer", False), bias=normal(1, 3))
