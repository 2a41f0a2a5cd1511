"""Drawing fewer marks than there are requests, by rules that a caption can state.

A plot of a hundred thousand points is a blot and a page of many megabytes. What is left out must
not be the slow ones: they are what people look for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Spot(NamedTuple):
    """A mark: where it stands, and which request it is."""

    x: float
    y: float
    request: int


def evenly(items: Sequence[T], most: int) -> list[T]:
    """Every n-th, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    if most < 2:
        return list(items[:most])
    step = (len(items) - 1) / (most - 1)
    return [items[round(index * step)] for index in range(most)]


def by_slices(spots: Sequence[Spot], most: int, slices: int = 100) -> list[Spot]:
    """At most `most` spots: of each of the slices of the x axis the lowest, the highest, and
    between them every n-th in order of height."""
    if len(spots) <= most or not spots:
        return list(spots)
    low, high = min(spot.x for spot in spots), max(spot.x for spot in spots)
    width = (high - low) / slices or 1.0
    piles: dict[int, list[Spot]] = {}
    for spot in spots:
        piles.setdefault(min(slices - 1, int((spot.x - low) / width)), []).append(spot)
    each = max(2, most // slices)
    kept: list[Spot] = []
    for _, pile in sorted(piles.items()):
        kept += evenly(sorted(pile, key=lambda spot: spot.y), each)
    return kept


def thinned_note(kept: int, of: int, what: str, rule: str) -> str:
    """For a caption; empty where nothing was left out."""
    return f"{kept:,} of {of:,} {what} are drawn: {rule}." if kept < of else ""
