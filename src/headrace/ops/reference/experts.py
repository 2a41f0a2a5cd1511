"""Routing and experts: the arithmetic of docs/kernels.md, one token at a time.

Routing is computed in float64 by single operations in a fixed order and rounded to float32 once, at
its end, so that every backend and level can have the same bits. The experts of a token are the
backend's own products and activation, combined in float32.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from headrace.ops.experts import ExpertMLP, Routes, Routing
from headrace.ops.interface import Ops
from headrace.ops.operands import LinearWeight
from headrace.ops.reference.arithmetic import F32, F64
from headrace.ops.reference.checks import check_rows
from headrace.ops.shared import check_ids

I32 = npt.NDArray[np.int32]

_FURTHEST = 500.0
"""Beyond it exp is 0 or inf, so that no result of routing is a denormal float64."""
_PER_LN2 = float.fromhex("0x1.71547652b82fep+0")
_LN2_HIGH = float.fromhex("0x1.62e42feep-1")  # 32 bits: n times it is exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_SMALLEST = float(np.finfo(np.float32).tiny)


def exp(x: F64) -> F64:
    """e^x by products and sums that are each rounded: the same bits on any machine."""
    with np.errstate(invalid="ignore", over="ignore"):
        inside = np.where(np.abs(x) <= _FURTHEST, x, 0.0)
        n = np.rint(inside * _PER_LN2)
        r = (inside - n * _LN2_HIGH) - n * _LN2_LOW
        p = np.full_like(r, 1 / math.factorial(13))
        for k in range(12, -1, -1):
            p = p * r + 1 / math.factorial(k)
        near = np.ldexp(p, n.astype(np.int32))
        far = np.where(x < 0, 0.0, np.where(x > 0, np.inf, np.nan))
        return np.where(np.abs(x) <= _FURTHEST, near, far)


def route(logits: F32, routing: Routing, bias: F32 | None) -> Routes:
    """The experts of every row of logits and their weights. ValueError for shapes and biases."""
    check_rows("logits", logits, routing.num_experts)
    if bias is not None:
        if routing.score == "sparsemixer":
            raise ValueError("bias: the score sparsemixer takes no selection bias")
        if bias.dtype != np.float32 or bias.shape != (routing.num_experts,):
            raise ValueError(
                f"bias must be float32[{routing.num_experts}], not {bias.dtype}{list(bias.shape)}"
            )
        if not np.isfinite(bias).all():
            raise ValueError(f"bias {bias[~np.isfinite(bias)][0]} is not a finite number")
    count, chosen = len(logits), routing.experts_per_token
    routes = Routes(np.empty((count, chosen), np.int32), np.empty((count, chosen), np.float32))
    shift = None if bias is None else _wide(bias)
    for index, row in enumerate(_wide(logits)):
        if np.isnan(row).any() or (routing.score != "sigmoid" and not np.isfinite(row.max())):
            routes.experts[index] = np.arange(chosen)
            routes.weights[index] = np.nan
            continue
        if routing.score == "sparsemixer":
            experts, scores = _sparsemixer(row, routing)
        else:
            experts, scores = _choose(row, routing, shift)
        routes.experts[index] = experts
        routes.weights[index] = _weights(scores, routing)
    return routes


def _wide(values: F32) -> F64:
    """As float64, denormals read as zero."""
    return np.where(np.abs(values) < _SMALLEST, 0.0, values.astype(np.float64))


def _softmax(logits: F64) -> F64:
    with np.errstate(invalid="ignore"):  # where all are -inf the result is NaN
        powers = exp(logits - logits.max())
    shares: F64 = powers / np.add.accumulate(powers)[-1]
    return shares


def _choose(row: F64, routing: Routing, shift: F64 | None) -> tuple[I32, F64]:
    """Experts and scores of one token, best first."""
    if routing.score == "softmax":
        scores = _softmax(row)
    elif routing.score == "sigmoid":
        scores = 1 / (1 + exp(-row))
    else:
        scores = row
    # Scores grow with logits, but those of large logits may be rounded to the same number.
    rank = row if shift is None else scores + shift
    allowed = np.ones(len(row), bool)
    if routing.num_groups > 1:
        top2 = routing.group_score == "top2"
        members = scores if top2 and shift is None else rank
        members = -np.sort(-members.reshape(routing.num_groups, -1), axis=1)
        of_group = members[:, 0]
        if top2 and members.shape[1] > 1:
            of_group = members[:, 0] + members[:, 1]
        best = np.argsort(-of_group, kind="stable")[: routing.chosen_groups]
        size = len(row) // routing.num_groups
        allowed = np.isin(np.arange(len(row)) // size, best)
    order = np.lexsort((np.arange(len(row)), -rank, ~allowed))  # the last key is the first
    experts = order[: routing.experts_per_token].astype(np.int32)
    if routing.score == "softmax_of_chosen":
        return experts, _softmax(row[experts])
    return experts, scores[experts]


def _sparsemixer(row: F64, routing: Routing) -> tuple[I32, F64]:
    """Experts and scores of one token: each choice is made among the logits that are left."""
    left = np.ones(len(row), bool)
    experts = np.empty(routing.experts_per_token, np.int32)
    scores = np.zeros(routing.experts_per_token)
    for choice in range(routing.experts_per_token):
        best = int(np.lexsort((np.arange(len(row)), -row, ~left))[0])
        highest = row[best]
        if np.isfinite(highest):
            with np.errstate(invalid="ignore", divide="ignore"):
                distance = (highest - row) / np.maximum(np.abs(row), highest)
            near = left & ~(distance > 2 * routing.jitter)
            scores[choice] = 1 / np.add.accumulate(exp(row[near] - highest))[-1]
        experts[choice], left[best] = best, False
    return experts, scores


def _weights(scores: F64, routing: Routing) -> F32:
    """Scores in the order of choice as the weights of a token, rounded once."""
    if routing.normalised:
        divisor = np.add.accumulate(scores)[-1] + routing.epsilon
        scores = scores / divisor if divisor else np.zeros_like(scores)
    with np.errstate(over="ignore"):
        weights = scores * routing.scale
        return np.where(np.abs(weights) < _SMALLEST, 0.0, weights).astype(np.float32)


def run(
    ops: Ops, x: F32, mlp: ExpertMLP, routes: Routes, residual: F32 | None, scale: float
) -> F32:
    """The chosen experts of every token; `packed` of both weights is a LinearWeight per expert."""
    gate_up: tuple[LinearWeight, ...] = mlp.gate_up.packed
    down: tuple[LinearWeight, ...] = mlp.down.packed
    check_rows("x", x, mlp.gate_up.in_features)
    count, hidden = len(x), mlp.down.out_features
    if routes.experts.ndim != 2 or len(routes.experts) != count:
        raise ValueError(f"experts of routes have shape {routes.experts.shape}, x has {count} rows")
    if routes.weights.shape != routes.experts.shape:
        raise ValueError(
            f"weights of routes have shape {routes.weights.shape}, experts {routes.experts.shape}"
        )
    check_ids("expert", routes.experts, mlp.gate_up.num_experts)
    if residual is not None:
        check_rows("residual", residual, hidden)
        if len(residual) != count:
            raise ValueError(f"residual has {len(residual)} rows, x has {count}")
    results = np.empty((*routes.experts.shape, hidden), np.float32)
    for expert in np.unique(routes.experts).tolist():
        token, choice = np.nonzero(routes.experts == expert)
        rows = x[token]
        if mlp.weigh_input:
            rows = rows * routes.weights[token, choice, None]
        wide = ops.linear(rows, gate_up[expert])
        inner = ops.gated_activation(wide, mlp.activation, limit=mlp.limit)
        results[token, choice] = ops.linear(inner, down[expert])
    total = np.zeros((count, hidden), np.float32)
    for column in range(routes.experts.shape[1]):
        part = results[:, column]
        if not mlp.weigh_input:
            part = routes.weights[:, column, None] * part
        total = total + part if column else part
    if scale != 1.0:
        total = total * np.float32(scale)
    return total if residual is None else total + residual
