"""Objects of answers in which each name is there once: of two, clients may read the other one."""

from __future__ import annotations

from typing import Any


class TwiceError(ValueError):
    """An object has a name twice."""


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`. Raises TwiceError."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise TwiceError
    return found
