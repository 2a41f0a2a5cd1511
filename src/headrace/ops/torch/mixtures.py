"""Products of projections, and the experts of a mixture that are made of them."""

from __future__ import annotations

import torch

from headrace.ops.experts import ExpertMLP, Routes
from headrace.ops.torch.checks import check_rows
from headrace.ops.torch.rows import gated
from headrace.ops.torch.weights import Linear


def times(x: torch.Tensor, linear: Linear) -> torch.Tensor:
    """W x + bias of rows f32[n, in]: f32[n, out]."""
    if linear.order is not None:
        x = x.index_select(1, linear.order)
    out = linear.matrix.times(x)
    return out if linear.bias is None else out + linear.bias


def run(
    x: torch.Tensor,
    mlp: ExpertMLP,
    routes: Routes,
    residual: torch.Tensor | None,
    scale: float,
) -> torch.Tensor:
    """The chosen experts of every token: f32[N, hidden]. One expert after another, as many as some
    token has chosen.
    """
    gate_up: tuple[Linear, ...] = mlp.gate_up.packed
    down: tuple[Linear, ...] = mlp.down.packed
    check_rows("x", x, mlp.gate_up.in_features)
    count, hidden = len(x), mlp.down.out_features
    experts, weights = routes
    if experts.ndim != 2 or len(experts) != count:
        raise ValueError(f"experts of routes have shape {tuple(experts.shape)}, x has {count} rows")
    if weights.shape != experts.shape:
        raise ValueError(
            f"weights of routes have shape {tuple(weights.shape)}, experts {tuple(experts.shape)}"
        )
    if residual is not None:
        check_rows("residual", residual, hidden, count)
    results = x.new_empty((*experts.shape, hidden))
    for expert in experts.unique().tolist():
        if not 0 <= expert < len(down):
            raise ValueError(f"expert {expert} is not in [0, {len(down)})")
        token, choice = (experts == expert).nonzero(as_tuple=True)
        given = x[token]
        if mlp.weigh_input:
            given = given * weights[token, choice][:, None]
        gate, up = times(given, gate_up[expert]).chunk(2, dim=1)
        inner = gated(gate, up, mlp.activation, mlp.limit)
        results[token, choice] = times(inner, down[expert])
    total = x.new_zeros((count, hidden))
    for place in range(experts.shape[1]):
        part = results[:, place]
        if not mlp.weigh_input:
            part = weights[:, place, None] * part
        total = total + part if place else part
    if scale != 1.0:
        total = total * scale
    return total if residual is None else total + residual
