"""Flags of `headrace bench load` that take one load, or a list of them for a sweep."""

from __future__ import annotations

import math

import click

from headrace.errors import shown

FOUND = "found"
"""What `--sweep` has without a number: as many points as there are unless a list says which."""


class Loads(click.ParamType[float | tuple[float, ...], object]):
    """One number above 0, or several with commas between: a tuple, whose rules are a sweep's."""

    name = "loads"

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | tuple[float, ...]:
        """Refuses what is empty, no number, or not above 0."""
        if not isinstance(value, str):
            return value  # type: ignore[return-value]  # a default, or what was converted before
        texts = [text.strip() for text in value.split(",")]
        loads = [self._number(text, value, param, ctx) for text in texts]
        return loads[0] if len(loads) == 1 else tuple(loads)

    def _number(
        self, text: str, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found: float
        try:
            found = int(text) if self._whole else float(text)
        except ValueError:
            found = math.nan
        if found > 0:
            return found
        kind, like = ("a whole number", "16") if self._whole else ("a number", "2.5")
        several = "1,4,16" if self._whole else "1,2,5"
        which = f"{shown(text)} in {shown(value)}" if "," in value else shown(text)
        raise click.BadParameter(
            f"{which} is not {kind} above 0; write one such as {like}, or with --sweep a list such "
            f"as {several}",
            param=param,
            ctx=ctx,
        )


class Points(click.ParamType[int, object]):
    """The type of the number of points of a sweep; 0 where none was given."""

    name = "points"

    def __init__(self, fewest: int, most: int) -> None:
        self._fewest, self._most = fewest, most

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Refuses what is no whole number within the limits."""
        if value == FOUND or value == 0:
            return 0
        try:
            found = int(str(value))
        except ValueError:
            found = -1
        if self._fewest <= found <= self._most:
            return found
        raise click.BadParameter(
            f"{shown(str(value))} is not a number of points from {self._fewest} to "
            f"{self._most}; to choose the loads yourself, give a list: --sweep --rate 1,2,5, "
            "or --sweep --concurrency 1,4,16",
            param=param,
            ctx=ctx,
        )


def listed(loads: tuple[float, ...]) -> str:
    """As it would be typed."""
    return ",".join(f"{load:.12g}" for load in loads)
