"""Options that take several values, by commas."""

from __future__ import annotations

from collections.abc import Sequence

import click

from headrace.ops.cpu import CpuOps


class Numbers(click.ParamType):  # type: ignore[type-arg]  # no generic before click 8.2
    """Whole numbers from `least` on, as 1,4,16."""

    name = "numbers"

    def __init__(self, least: int = 1) -> None:
        self._least = least

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Click's own; fails for what is no such number."""
        parts = str(value).split(",")
        if not all(part.isdecimal() and int(part) >= self._least for part in parts):
            self.fail(f"{value} is not numbers from {self._least} on, as 1,4,16", param, ctx)
        return tuple(map(int, parts))


class Sizes(click.ParamType):  # type: ignore[type-arg]
    """As many sizes as there are names, as 1024x6144."""

    name = "sizes"

    def __init__(self, *names: str) -> None:
        self._names = names

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Click's own; fails for another number of sizes, or one that is 0 or none."""
        parts = str(value).split("x")
        whole = all(part.isdecimal() and int(part) for part in parts)
        if not whole or len(parts) != len(self._names):
            self.fail(f"{value} is not {' x '.join(self._names)}, as 64x128 for two", param, ctx)
        return tuple(map(int, parts))


class Names(click.ParamType):  # type: ignore[type-arg]
    """Some of a list, as bf16,fp8."""

    name = "names"

    def __init__(self, known: Sequence[str]) -> None:
        self._known = known

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Click's own; fails for a name that is not in the list."""
        parts = tuple(str(value).split(","))
        for part in parts:
            if part not in self._known:
                self.fail(f"{part!r} is none of {', '.join(self._known)} here", param, ctx)
        return parts


def levels() -> Names:
    """Dispatch levels that this machine can run."""
    return Names(("auto", *CpuOps.levels()))
