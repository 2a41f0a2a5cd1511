"""One choice for each of several items: the least cost within a limit of weight, found exactly.

Items are matrices, choices the kinds they may get; weight is bytes and cost the loss, or the other
way round (the multiple-choice knapsack). Items are taken one after another, and of all partial
choices those are kept that no other beats in both weight and cost, and whose bound can still beat
the best whole choice known. The bound is that of the relaxation in which an item may be split
between two choices: its remaining items walk down the edges of their lower convex hulls, steepest
first. Walking whole edges gives the first choice to beat.

Source: Kellerer, Pferschy, Pisinger, "Knapsack Problems" (2004), chapter 11.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Partial choices kept for an item. Beyond, those of the worst bounds are dropped, and the result is
# no longer sure to be the best; models of some thousand matrices stay far below.
_MOST_STATES = 200_000


class Item(NamedTuple):
    """The choices of one item."""

    weights: Floats
    """float64[choices], 0 or more."""
    costs: Floats
    """float64[choices], 0 or more."""


def cheapest(items: Sequence[Item], limit: float) -> list[int] | None:
    """The choice of each item, of the least sum of costs with a sum of weights up to `limit`.

    None where the lightest choices together weigh more than that.
    """
    hulls = [_hull(item) for item in items]
    lightest = sum(float(item.weights.min()) for item in items)
    if lightest > limit:
        return None
    best = _walked(items, hulls, limit)
    best_cost = _sum(items, best)
    bounds = _bounds(items, hulls)
    weights, costs = np.zeros(1), np.zeros(1)
    trail: list[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]] = []
    for number, item in enumerate(items):
        all_weights = (weights[:, None] + item.weights).reshape(-1)
        all_costs = (costs[:, None] + item.costs).reshape(-1)
        bound = all_costs + bounds[number + 1].least_cost(limit - all_weights)
        # Equal bounds stay: among them may be the best one itself.
        kept = np.nonzero(bound <= best_cost * (1 + 1e-12))[0]
        kept = kept[np.lexsort((all_costs[kept], all_weights[kept]))]
        ahead = np.minimum.accumulate(np.concatenate([[np.inf], all_costs[kept]]))[:-1]
        kept = kept[all_costs[kept] < ahead]
        if len(kept) > _MOST_STATES:
            kept = np.sort(kept[np.argsort(bound[kept], kind="stable")[:_MOST_STATES]])
        if not len(kept):
            return best
        weights, costs = all_weights[kept], all_costs[kept]
        width = len(item.weights)
        trail.append(((kept // width).astype(np.int32), (kept % width).astype(np.int32)))
    state = int(costs.argmin())
    if costs[state] >= best_cost:
        return best
    chosen = []
    for before, choice in reversed(trail):
        chosen.append(int(choice[state]))
        state = int(before[state])
    return chosen[::-1]


class _Bound(NamedTuple):
    """The relaxation of the items from one on."""

    weights: Floats
    """float64[points], ascending."""
    costs: Floats
    """float64[points]: the least cost at each of these weights; straight lines between them."""

    def least_cost(self, weights: Floats) -> Floats:
        """At these weights; infinite below the first."""
        found = np.interp(weights, self.weights, self.costs)
        return np.where(weights < self.weights[0], np.inf, found)


def _hull(item: Item) -> list[int]:
    """Choices on the lower convex hull, by rising weight and falling cost."""
    order = np.lexsort((item.costs, item.weights))
    hull: list[int] = []
    for index in map(int, order):
        if hull and item.costs[index] >= item.costs[hull[-1]]:
            continue
        while len(hull) > 1 and _slope(item, hull[-2], hull[-1]) >= _slope(item, hull[-1], index):
            hull.pop()
        hull.append(index)
    return hull


def _slope(item: Item, start: int, end: int) -> float:
    """Change of cost for each unit of weight, from one choice to a heavier and cheaper one."""
    weight = float(item.weights[end] - item.weights[start])
    cost = float(item.costs[end] - item.costs[start])
    return cost / weight if weight else -np.inf


def _walked(items: Sequence[Item], hulls: Sequence[list[int]], limit: float) -> list[int]:
    """From the lightest choices along the steepest edges, each that still fits in the limit."""
    at = [0] * len(items)
    weight = sum(float(item.weights[hull[0]]) for item, hull in zip(items, hulls, strict=True))
    edges = sorted(
        (_slope(items[number], start, end), number, step)
        for number, hull in enumerate(hulls)
        for step, (start, end) in enumerate(pairwise(hull))
    )
    for _, number, step in edges:
        # An edge behind one that did not fit is not reached.
        if at[number] != step:
            continue
        hull = hulls[number]
        more = float(items[number].weights[hull[step + 1]] - items[number].weights[hull[step]])
        if weight + more <= limit:
            weight += more
            at[number] = step + 1
    return [hull[step] for hull, step in zip(hulls, at, strict=True)]


def _bounds(items: Sequence[Item], hulls: Sequence[list[int]]) -> list[_Bound]:
    """Of the items from each one on; the last is of none."""
    bounds = [_Bound(np.zeros(1), np.zeros(1))]
    weight = cost = 0.0
    edges: list[tuple[float, float, float]] = []
    for item, hull in zip(reversed(items), reversed(hulls), strict=True):
        weight += float(item.weights[hull[0]])
        cost += float(item.costs[hull[0]])
        for start, end in pairwise(hull):
            more = float(item.weights[end] - item.weights[start])
            less = float(item.costs[end] - item.costs[start])
            edges.append((_slope(item, start, end), more, less))
        edges.sort()
        steps = np.array([(more, less) for _, more, less in edges]).reshape(-1, 2)
        line = np.concatenate([[(weight, cost)], steps]).cumsum(axis=0)
        bounds.append(_Bound(line[:, 0], line[:, 1]))
    return bounds[::-1]


def _sum(items: Sequence[Item], chosen: Sequence[int]) -> float:
    return sum(float(item.costs[choice]) for item, choice in zip(items, chosen, strict=True))
