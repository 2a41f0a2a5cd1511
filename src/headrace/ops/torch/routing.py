"""Routing on the device: float64, the operations of docs/kernels.md in their order."""

from __future__ import annotations

import math

import torch

from headrace.ops.experts import Routing

_FURTHEST = 500.0
"""Beyond it exp is 0 or inf, so that no result of routing is a denormal float64."""
_PER_LN2 = float.fromhex("0x1.71547652b82fep+0")
_LN2_HIGH = float.fromhex("0x1.62e42feep-1")  # 32 bits: n times it is exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_SMALLEST = 2.0**-126


def exp(x: torch.Tensor) -> torch.Tensor:
    """e^x of float64 by products and sums that are each rounded, as on every backend."""
    near = x.abs() <= _FURTHEST
    inside = torch.where(near, x, 0.0)
    n = (inside * _PER_LN2).round()
    r = (inside - n * _LN2_HIGH) - n * _LN2_LOW
    p = torch.full_like(r, 1 / math.factorial(13))
    for k in range(12, -1, -1):
        p = p * r + 1 / math.factorial(k)
    power = torch.ldexp(p, n)
    far = torch.where(x < 0, 0.0, torch.where(x > 0, torch.inf, torch.nan))
    return torch.where(near, power, far)


def route(
    logits: torch.Tensor, routing: Routing, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The experts int32[N, k] of rows of logits f32[N, experts], and their weights f32[N, k]."""
    wide = _wide(logits)
    unusable = wide.isnan().any(dim=1)
    if routing.score != "sigmoid":
        unusable = unusable | ~wide.amax(dim=1).isfinite()
    rows = torch.where(unusable[:, None], 0.0, wide)
    if routing.score == "sparsemixer":
        experts, scores = _sparsemixer(rows, routing)
    else:
        experts, scores = _choose(rows, routing, None if bias is None else _wide(bias))
    weights = _weights(scores, routing)
    first = torch.arange(routing.experts_per_token, device=logits.device)
    experts = torch.where(unusable[:, None], first, experts)
    weights = torch.where(unusable[:, None], torch.nan, weights)
    return experts.int(), weights


def _wide(values: torch.Tensor) -> torch.Tensor:
    """As float64, denormals read as zero."""
    return torch.where(values.abs() < _SMALLEST, 0.0, values).double()


def _in_order(x: torch.Tensor) -> torch.Tensor:
    """Sums of the last axis in ascending order, each rounded: [..., 1]."""
    total = x[..., :1]
    for at in range(1, x.shape[-1]):
        total = total + x[..., at : at + 1]
    return total


def _softmax(logits: torch.Tensor) -> torch.Tensor:
    powers = exp(logits - logits.amax(dim=1, keepdim=True))
    return powers / _in_order(powers)


def _best(ranks: torch.Tensor, count: int) -> torch.Tensor:
    """int64[N, count]: the places of the highest of each row, best first, the lower of equals."""
    return torch.sort(ranks, dim=1, descending=True, stable=True).indices[:, :count]


def _choose(
    rows: torch.Tensor, routing: Routing, shift: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Experts and scores, best first."""
    scores = rows
    if routing.score == "softmax":
        scores = _softmax(rows)
    elif routing.score == "sigmoid":
        scores = 1 / (1 + exp(-rows))
    # Scores grow with logits, but those of large logits may be rounded to the same number.
    rank = rows if shift is None else scores + shift
    ordered = rank
    if routing.num_groups > 1:
        top2 = routing.group_score == "top2"
        members = (scores if top2 and shift is None else rank).unflatten(
            1, (routing.num_groups, -1)
        )
        members = members.sort(dim=2, descending=True).values
        of_group = members[..., 0]
        if top2 and members.shape[2] > 1:
            of_group = members[..., 0] + members[..., 1]
        best = _best(of_group, routing.chosen_groups)
        allowed = torch.zeros_like(of_group, dtype=torch.bool).scatter_(1, best, value=True)
        # Whatever is left of the others comes behind all that is in a chosen group.
        allowed = allowed.repeat_interleave(members.shape[2], dim=1)
        order = _best(rank, rank.shape[1])
        behind = (~allowed.gather(1, order)).int().sort(dim=1, stable=True).indices
        experts = order.gather(1, behind)[:, : routing.experts_per_token]
    else:
        experts = _best(ordered, routing.experts_per_token)
    if routing.score == "softmax_of_chosen":
        return experts, _softmax(rows.gather(1, experts))
    return experts, scores.gather(1, experts)


def _sparsemixer(rows: torch.Tensor, routing: Routing) -> tuple[torch.Tensor, torch.Tensor]:
    """Experts and scores: each choice is made among the logits that are left."""
    left = torch.ones_like(rows, dtype=torch.bool)
    experts, scores = [], []
    for _ in range(routing.experts_per_token):
        order = _best(rows, rows.shape[1])
        taken = (~left.gather(1, order)).int().sort(dim=1, stable=True).indices
        best = order.gather(1, taken)[:, :1]
        highest = rows.gather(1, best)
        distance = (highest - rows) / torch.maximum(rows.abs(), highest)
        near = left & ~(distance > 2 * routing.jitter)
        powers = torch.where(near, exp(rows - highest), 0.0)
        score = torch.where(highest.isfinite(), 1 / _in_order(powers), 0.0)
        experts.append(best)
        scores.append(score)
        left = left.scatter(1, best, value=False)
    return torch.cat(experts, dim=1), torch.cat(scores, dim=1)


def _weights(scores: torch.Tensor, routing: Routing) -> torch.Tensor:
    """Scores in the order of choice as the weights of a token, rounded once: f32[N, k]."""
    if routing.normalised:
        divisor = _in_order(scores) + routing.epsilon
        scores = torch.where(divisor != 0, scores / divisor, 0.0)
    weights = scores * routing.scale
    return torch.where(weights.abs() < _SMALLEST, 0.0, weights).float()
