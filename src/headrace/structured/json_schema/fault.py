"""Where in a schema llguidance finds what it cannot hold an answer to; it does not say it itself.

Every place of the keyword at fault is compiled alone, the innermost first, until one is refused for
the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.structured.json_schema.costs import Pointer

MOST_TRIED = 40
"""Places that are compiled to find one; compiling each has the limits of every grammar."""

_KEYWORDS = (
    ("oneOf constraints", ("oneOf",)),
    ("min/maxProperties", ("maxProperties", "minProperties")),
    ("are not disjoint", ("patternProperties",)),
)
"""A part of llguidance's reason, and the keywords that it may be about."""


def place_of(
    schema: dict[str, Any], reason: str, refusal_of: Callable[[dict[str, Any]], str]
) -> tuple[Pointer, str] | None:
    """The schema within that is refused for a reason, and its keyword; None if it is not found.

    refusal_of: compiles a schema and gives the reason it is refused, "" if it is not.
    """
    found = next((pair for pair in _KEYWORDS if pair[0] in reason), None)
    if found is None:
        return None
    part, keywords = found
    places = [
        (pointer, keyword)
        for pointer, inner in _schemas(schema)
        for keyword in keywords
        if keyword in inner
    ]
    options = {"x-guidance": schema.get("x-guidance", {})}
    whole = _moved(schema)
    for pointer, keyword in sorted(places, key=lambda place: -len(place[0]))[:MOST_TRIED]:
        reference = "".join(f"/{_escaped(step)}" for step in ("$defs", "whole", *pointer))
        alone = {"$ref": f"#{reference}", "$defs": {"whole": whole}, **options}
        if part in refusal_of(alone):
            return pointer, keyword
    return None


def _schemas(value: Any) -> Iterator[tuple[Pointer, dict[str, Any]]]:
    """Every object within a schema, where it is a schema and where it is not."""
    pending: list[tuple[Pointer, Any]] = [((), value)]
    while pending:
        pointer, inner = pending.pop()
        if isinstance(inner, dict):
            yield pointer, inner
            pending += [((*pointer, name), each) for name, each in inner.items()]
        elif isinstance(inner, list):
            pending += [((*pointer, str(index)), each) for index, each in enumerate(inner)]


def _moved(value: Any) -> Any:
    """A schema whose references are to places within "#/$defs/whole"."""
    if isinstance(value, list):
        return [_moved(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: f"#/$defs/whole{each[1:]}"
        if name == "$ref" and isinstance(each, str) and each.startswith("#")
        else _moved(each)
        for name, each in value.items()
        if name != "x-guidance"
    }


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1").replace("%", "%25")
