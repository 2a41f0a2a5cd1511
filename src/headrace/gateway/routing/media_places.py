"""Finds where a body may hold pictures, sounds and files: in messages, never in what tools are or
are given, which a provider writes into the prompt as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec

from headrace.protocol.json_object import JsonObject

_SAID = frozenset(("messages", "input", "prompt"))
_IMAGES = "images"
_OF_TOOLS = ("action", "arguments", "input", "tools")
_MARK = re.compile(rf'"(?:{"|".join(_OF_TOOLS)})"'.encode())
# May be an escaped letter of these names.
_ESCAPE = re.compile(rb"\\u00")
# Long conversations have some thousand; each takes some microseconds.
_MOST_MARKS = 2**13

# Inputs of tools lie no deeper, nor do media: lists of messages, their parts, the parts of a
# tool's result, and the object that holds the bytes.
_MOST_LEVELS = 7

_LIST_BEGINS, _OBJECT_BEGINS = b"[{"
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def media_places(
    body: JsonObject, may_have: Callable[[bytes], bool], *, names_are_plain: bool
) -> list[bytes]:
    """Their bytes, to be searched for fields and strings only, as they may not be valid JSON.

    `may_have` says whether a field is worth a look. `names_are_plain` says that no name has an
    escaped letter.
    """
    found = []
    if _IMAGES in body:
        found.append(b'"images":' + (body.value(_IMAGES) or b""))
    for name in body.present(_SAID):
        value = body.value(name) or b""
        if names_are_plain and not may_have(value):
            continue
        marks = len(_MARK.findall(value)) + (0 if names_are_plain else value.count(b"\\u00"))
        if not marks:
            found.append(value)
        elif marks <= _MOST_MARKS:
            pieces = _without_tools(memoryview(value), _MOST_LEVELS, plain=names_are_plain)
            found.append(b"".join(pieces))
    return found


def _without_tools(value: memoryview, levels: int, *, plain: bool) -> Iterator[bytes | memoryview]:
    """Its pieces without members of tools; nothing of what lies too deep or is not readable."""
    begins = value[0]
    is_marked = _MARK.search(value) or not (plain or _ESCAPE.search(value) is None)
    if begins not in (_LIST_BEGINS, _OBJECT_BEGINS) or not is_marked:
        yield value
        return
    if not levels:
        return
    try:
        if begins == _LIST_BEGINS:
            for item in _LIST.decode(value):
                yield from _without_tools(memoryview(item), levels - 1, plain=plain)
                yield b","
            return
        for name, member in _OBJECT.decode(value).items():
            if name not in _OF_TOOLS:
                yield msgspec.json.encode(name) + b":"
                yield from _without_tools(memoryview(member), levels - 1, plain=plain)
                yield b","
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
