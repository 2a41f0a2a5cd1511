"""JSON objects in which each name is there once: of two, one reader takes the first value and
another the last."""

from __future__ import annotations

from typing import Any


class TwiceError(ValueError):
    """An object has the field `name` twice."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook` for `json.loads`. Raises TwiceError."""
    found = dict(pairs)
    if len(found) != len(pairs):
        seen = set()
        for name, _ in pairs:
            if name in seen:
                raise TwiceError(name)
            seen.add(name)
    return found
