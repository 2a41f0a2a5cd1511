"""Values out of JSON that anybody may have written: what is not of its kind counts as not there."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import mapping, objects, text

__all__ = ["DIALECT", "add_missing", "left_over", "mapping", "objects", "text", "whole"]

DIALECT = "openai-chat"


def whole(value: Any) -> int | None:
    """An integer as such, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def left_over(value: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The fields of an object that are not `known` and say something."""
    return {
        name: one
        for name, one in value.items()
        if name not in known and one is not None and one != "" and one != []
    }


def add_missing(target: dict[str, Any], more: dict[str, Any]) -> None:
    """Put in what is not there yet, also inside of objects."""
    for name, value in more.items():
        if name not in target:
            target[name] = value
        elif isinstance(target[name], dict) and isinstance(value, dict):
            add_missing(target[name], value)
