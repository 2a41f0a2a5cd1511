"""Long searches in steps, between which they can be cancelled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.gateway.guards.guard import Match

Step = Callable[[], None]
"""Called every few milliseconds of a look. Raises LeftError to end it."""


class LeftError(Exception):
    """A search whose result no client waits for."""


def go_on() -> None:
    """The step of a look that is short."""


def one_by_one(
    find: Callable[[str, int], list[Match]], texts: Iterable[str], step: Step
) -> Iterator[list[Match]]:
    """The matches in each text."""
    for text in texts:
        step()
        yield find(text, 0)
