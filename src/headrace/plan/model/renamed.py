"""Figures of several plans in one: their ids get a name in front, and so do those that they name.

Two models of a cascade have a TTFT each, and so has every option of a recommendation; ids are
unique in a plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.plan.quantity import Input, Quantity

_FIGURE = "figure "


def under(prefix: str, figures: Iterable[Quantity]) -> tuple[Quantity, ...]:
    """`figures` with ids `prefix.id`; inputs that are one of them follow, others stay."""
    found = tuple(figures)
    known = {one.id for one in found}

    def moved(one: Input) -> Input:
        id = one.source.removeprefix(_FIGURE)
        if id == one.source or id not in known:
            return one
        return replace(one, source=f"{_FIGURE}{prefix}.{id}")

    return tuple(
        replace(one, id=f"{prefix}.{one.id}", inputs=tuple(map(moved, one.inputs))) for one in found
    )


def figure_input(figure: Quantity, name: str = "") -> Input:
    """The input that a figure is of another one."""
    return Input(
        name or figure.name, figure.value, figure.unit, f"{_FIGURE}{figure.id}",
        "exact" if figure.is_exact else "given",
    )  # fmt: skip
