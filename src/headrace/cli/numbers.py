"""Options that take lists of whole numbers."""

from __future__ import annotations

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
