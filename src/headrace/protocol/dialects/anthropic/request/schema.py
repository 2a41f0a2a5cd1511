"""JSON schemas as Anthropic's structured output takes them, from those of other dialects.

Anthropic ("Structured outputs", its limits) wants additionalProperties false in every object and
refuses bounds of numbers, strings and arrays. As its own Python package does, what is refused goes
into the description, where the model reads it; what that loses is told.
"""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.anthropic.values import encoded

_FORMATS = frozenset(
    {
        "date-time",
        "time",
        "date",
        "duration",
        "email",
        "hostname",
        "uri",
        "ipv4",
        "ipv6",
        "uuid",
    }
)
_KEPT = frozenset({"type", "enum", "const", "title", "default", "required", "$ref"})
_LISTS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
_MAPS = ("properties", "$defs", "definitions")
# Notes to people, which bind nobody.
_NOTES = frozenset(
    {"$schema", "$id", "$comment", "examples", "deprecated", "readOnly", "writeOnly"}
)


def supported(schema: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The schema the API takes, and the keywords it no longer holds the model to."""
    lost: dict[str, None] = {}
    written = _schema(schema, lost)
    return (written if isinstance(written, dict) else {}), tuple(lost)


def _schema(schema: object, lost: dict[str, None]) -> object:
    if not isinstance(schema, dict):
        return schema
    written: dict[str, Any] = {}
    notes: list[str] = []
    for key, value in schema.items():
        if key in _KEPT or key == "description":
            written[key] = value
        elif key in _LISTS and isinstance(value, list):
            written[_LISTS[key]] = [_schema(inner, lost) for inner in value]
        elif key in _MAPS and isinstance(value, dict):
            written[key] = {name: _schema(inner, lost) for name, inner in value.items()}
        elif key == "items":
            written[key] = _schema(value, lost)
        elif _is_kept_bound(key, value):
            written[key] = value
        elif key == "additionalProperties":
            if value is not False:
                lost[key] = None
        elif key not in _NOTES:
            lost[key] = None
            notes.append(f"{key}: {encoded(value).decode()}")
    kind = schema.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema:
        written["additionalProperties"] = False
    if notes:
        note = "{" + ", ".join(notes) + "}"
        before = written.get("description")
        written["description"] = f"{before}\n\n{note}" if isinstance(before, str) else note
    return written


def _is_kept_bound(key: str, value: object) -> bool:
    if key == "format":
        return isinstance(value, str) and value in _FORMATS
    return key == "minItems" and value in (0, 1)
