"""Whether a client's body has a field that an error or a header is to name."""

from __future__ import annotations

from headrace.protocol.json_object import JsonObject

# Their values are large, and paths in them are not looked up.
_LARGE = frozenset(("functions", "input", "messages", "prompt", "tools"))


def has_field(body: JsonObject, path: str) -> bool:
    """Whether a body has the field at a path; of those within large values the list is enough."""
    _, mark, name = path.rpartition("..")
    if mark:
        return not name.isidentifier() or f'"{name}"'.encode() in body.body
    names = path.partition("[")[0].split(".")
    if names[0] not in body:
        return False
    if len(names) == 1 or names[0] in _LARGE:
        return True
    value = body.decoded(names[0])
    for name in names[1:]:
        value = value.get(name) if isinstance(value, dict) else None
    return value is not None
