"""Whether, and where, a client's body has a field that an error or a header is to name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.protocol.json_object import JsonObject

# Their values are large, and paths in them are not looked up.
_LARGE = frozenset(("functions", "input", "messages", "prompt", "tools"))
_DESCENDANT = re.compile(r'(?P<head>\w+)\.\.(?:\[\?@\.type=="(?P<kind>[^"]*)"\]|(?P<leaf>\w+))')
# Parts stand in lists of these; whatever else a part holds is its own (a call's arguments).
_OF_PARTS = ("content", "output")


def has_field(body: JsonObject, path: str) -> bool:
    """Whether a body has the field at a path; of those within large values the list is enough."""
    head, mark, name = path.rpartition("..")
    if mark and head != "$" and head not in body:
        return False
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


def place_of(body: JsonObject, path: str) -> str:
    """Where the body has the first field that a path of descendants leads to, as errors of chat
    completions name it: `messages[0].content[1].type` for `messages..[?@.type=="image"]`. The path
    itself where it is of another kind or leads nowhere."""
    wanted = _DESCENDANT.fullmatch(path)
    if wanted is None or wanted["head"] not in body:
        return path
    kind, leaf = wanted["kind"], wanted["leaf"] or "type"
    for place, value in _parts(body.decoded(wanted["head"]), wanted["head"]):
        if value.get("type") == kind if kind is not None else leaf in value:
            return f"{place}.{leaf}"
    return path


def _parts(value: object, place: str) -> Iterator[tuple[str, dict[str, object]]]:
    """The objects in messages and lists of parts, in their order, and where they are."""
    waiting = [(place, value)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, list):
            waiting += [(f"{place}[{i}]", value[i]) for i in reversed(range(len(value)))]
        elif isinstance(value, dict):
            yield place, value
            waiting += [(f"{place}.{name}", value[name]) for name in _OF_PARTS if name in value]
