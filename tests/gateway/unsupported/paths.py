"""Paths in a client's body, in as much of JSONPath (RFC 9535) as messages use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_STEP = re.compile(
    r'(?P<below>\.\.)?(?:\.?(?P<name>[^.\[\]]+)|(?P<every>\[\*\])|\[\?@\.type=="(?P<type>[^"]+)"\])'
)


def found(body: Any, path: str) -> list[Any]:
    """All values at a path."""
    values = [body]
    rest = path.removeprefix("$")
    while rest:
        step = _STEP.match(rest)
        assert step is not None, f"{rest!r} of {path!r}"
        rest = rest[step.end() :]
        if step["below"]:
            values = [inner for value in values for inner in _below(value)]
        if step["name"]:
            name = step["name"]
            values = [value[name] for value in values if isinstance(value, dict) and name in value]
        elif step["every"]:
            values = [inner for value in values if isinstance(value, list) for inner in value]
        else:
            kind = step["type"]
            values = [
                inner
                for value in values
                if isinstance(value, list)
                for inner in value
                if isinstance(inner, dict) and inner.get("type") == kind
            ]
    return values


def _below(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, dict):
        for inner in value.values():
            yield from _below(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _below(inner)
