"""Options that take numbers: lists of whole ones, and any within a range."""

from __future__ import annotations

import math
from typing import Any

import click


def numbers(_ctx: click.Context, param: click.Parameter, value: str | None) -> list[int] | None:
    """Option callback: whole numbers, separated by commas."""
    if value is None:
        return None
    try:
        found = [int(part) for part in value.split(",")]
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list such as 1,8,32", param=param) from None
    if min(found) < 0:
        raise click.BadParameter(f"{min(found)} is below 0", param=param)
    return found


class NumberRange(click.FloatRange):
    """A number within a range, which NaN is not: it compares as within any to click."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number
