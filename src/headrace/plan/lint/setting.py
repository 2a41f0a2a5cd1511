"""A value with the place it was read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.plan.lint.finding import Evidence

T = TypeVar("T")


@dataclass(frozen=True)
class Setting(Generic[T]):
    """A setting's value, name and place."""

    value: T
    name: str
    """The program's name for it ("--max-num-seqs")."""
    where: str
    """File and line, or "command line"."""

    def evidence(self, unit: str = "") -> Evidence:
        """As it is shown."""
        value = self.value
        shown = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        return Evidence(self.name, _text(value) if shown is None else shown, self.where, unit)


def _text(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
