"""Products of projections, and the experts of a mixture that are made of them."""

from __future__ import annotations

import torch

from headrace.ops.experts import ExpertMLP, Routes
from headrace.ops.torch.checks import check_rows
from headrace.ops.torch.rows import gated
from headrace.ops.torch.weights import Linear, Stack


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
    """The chosen experts of every token: f32[N, hidden]."""
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
    results = _all_at_once(x, mlp, routes)
    if results is None:
        results = _one_by_one(x, mlp, routes)
    total = x.new_zeros((count, hidden))
    for place in range(experts.shape[1]):
        part = results[:, place]
        if not mlp.weigh_input:
            part = weights[:, place, None] * part
        total = total + part if place else part
    if scale != 1.0:
        total = total * scale
    return total if residual is None else total + residual


def _one_by_one(x: torch.Tensor, mlp: ExpertMLP, routes: Routes) -> torch.Tensor:
    """f32[N, k, hidden], one expert after another, as many as some token has chosen. The step waits
    for the device to know which."""
    gate_up: Stack = mlp.gate_up.packed
    down: Stack = mlp.down.packed
    experts, weights = routes
    results = x.new_empty((*experts.shape, mlp.down.out_features))
    for expert in experts.unique().tolist():
        if not 0 <= expert < len(down.linears):
            raise ValueError(f"expert {expert} is not in [0, {len(down.linears)})")
        token, choice = (experts == expert).nonzero(as_tuple=True)
        given = x[token]
        if mlp.weigh_input:
            given = given * weights[token, choice][:, None]
        gate, up = times(given, gate_up.linears[expert]).chunk(2, dim=1)
        inner = gated(gate, up, mlp.activation, mlp.limit)
        results[token, choice] = times(inner, down.linears[expert])
    return results


def _all_at_once(x: torch.Tensor, mlp: ExpertMLP, routes: Routes) -> torch.Tensor | None:
    """The same by kernels, one launch for all experts; None where they do not compute it. Experts
    are those of `Ops.route`, which are not looked at here: nothing waits for the device."""
    gate_up: Stack = mlp.gate_up.packed
    down: Stack = mlp.down.packed
    if not gate_up.matrix.kernels:
        return None
    from headrace.ops.torch.triton import products

    if not all(products.takes(stack.matrix, stacked=True) for stack in (gate_up, down)):
        return None
    count, chosen = routes.experts.shape
    places = routes.experts.flatten().long()
    # As many rows as an expert meets on average say how many a tile has.
    each = -(-len(places) // mlp.down.num_experts)
    tiles = [products.tile_rows(weight.codec, each) for weight in (mlp.gate_up, mlp.down)]
    groups = {rows: products.Groups.of(places, mlp.down.num_experts, rows) for rows in set(tiles)}
    given, sources = x, chosen
    if mlp.weigh_input:
        given, sources = x.repeat_interleave(chosen, dim=0) * routes.weights.reshape(-1, 1), 1
    wide = products.grouped(
        given, gate_up.matrix, mlp.gate_up.out_features, groups[tiles[0]], sources
    )
    if gate_up.bias is not None:
        wide = wide + gate_up.bias[places]
    gate, up = wide.chunk(2, dim=1)
    inner = gated(gate, up, mlp.activation, mlp.limit)
    results = products.grouped(inner, down.matrix, mlp.down.out_features, groups[tiles[1]])
    if down.bias is not None:
        results = results + down.bias[places]
    return results.unflatten(0, (count, chosen))
