"""The places of values in JSON text, at any depth, so that they can be replaced without changing
any other byte.

The text has to be valid JSON, which whoever decoded it before knows. Nothing is built of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

import msgspec

Path: TypeAlias = tuple[str | int, ...]
"""Names and places in lists, from the outermost value inwards."""

NAME = -1
"""As a path's last step: the name itself that the path leads to, in place of its value."""

_TOKEN = re.compile(
    rb'[ \t\r\n,:]*+("(?:[^"\\]++|\\.)*+"|[{}\[\]]|[^ \t\r\n,:{}\[\]"]++)', re.DOTALL
)
_TEXT = msgspec.json.Decoder(str)
_QUOTE, _OPEN_OBJECT, _CLOSE_OBJECT = 0x22, 0x7B, 0x7D
_OPEN_LIST, _CLOSE_LIST = 0x5B, 0x5D


class Span(NamedTuple):
    """The place of a value, text[start:end]."""

    start: int
    end: int


class _Open:
    """An object or a list that is not closed yet. key: that of the value that comes next or is
    open."""

    __slots__ = ("is_list", "key", "start", "wants_name")

    def __init__(self, start: int, *, is_list: bool) -> None:
        self.start = start
        self.is_list = is_list
        self.key: str | int = 0
        self.wants_name = not is_list


def spans(text: bytes, wanted: Collection[Path]) -> dict[Path, Span]:
    """The spans of those of `wanted` that exist; of a name that occurs twice, the last one."""
    found: dict[Path, Span] = {}
    opened: list[_Open] = []
    of_names = any(wanted_path and wanted_path[-1] == NAME for wanted_path in wanted)
    # What is nested otherwise than they are needs no path: one of each value takes time.
    depths = {len(wanted_path) for wanted_path in wanted}
    for token in _TOKEN.finditer(text):
        start, end = token.span(1)
        mark = text[start]
        top = opened[-1] if opened else None
        if mark in (_CLOSE_OBJECT, _CLOSE_LIST):
            start = opened.pop().start
        elif top is not None and top.wants_name:
            top.key, top.wants_name = _TEXT.decode(text[start:end]), False
            if of_names and (name := (*(level.key for level in opened), NAME)) in wanted:
                found[name] = Span(start, end)
            continue
        elif mark in (_OPEN_OBJECT, _OPEN_LIST):
            opened.append(_Open(start, is_list=mark == _OPEN_LIST))
            continue
        if len(opened) in depths and (path := tuple([level.key for level in opened])) in wanted:
            found[path] = Span(start, end)
        if opened:
            _passed(opened[-1])
    return found


def _passed(top: _Open) -> None:
    """A value of it is whole."""
    if isinstance(top.key, int):
        top.key += 1
    else:
        top.wants_name = True


def replaced(text: bytes, values: Mapping[Path, bytes]) -> bytes:
    """The text with those values replaced by JSON of `values`.

    Paths that do not exist change nothing; none may lie within another.
    """
    pieces: list[bytes] = []
    at = 0
    there = spans(text, values.keys())
    for path, span in sorted(there.items(), key=lambda entry: entry[1]):
        pieces += (text[at : span.start], values[path])
        at = span.end
    pieces.append(text[at:])
    return b"".join(pieces)
