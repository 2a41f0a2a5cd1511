"""A JSON text in which values were replaced, and no other character changed.

The text is read as a sequence of tokens and never built. What is not JSON is copied unchanged, so
that half a body can be read as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import msgspec

_TOKEN = re.compile(r'"((?:[^"\\]++|\\.)*+)("?)|[{}\[\],:]|[^\s"{}\[\],:]++', re.DOTALL)
_REPLACED = '"[REDACTED]"'

# The name of the field it is in ("" for none; a list's own for what is in a list), and the text:
# what is to stand there, None to leave it as it is.
OnText = Callable[[str, str], str | None]


def replaced(body: str, on_text: OnText, is_hidden: Callable[[str], bool]) -> str:
    """on_text: is given every string, names too. is_hidden: whether a field's whole value becomes
    [REDACTED], by its name."""
    walk = _Walk(body, on_text, is_hidden)
    for token in _TOKEN.finditer(body):
        walk.take(token)
    return walk.end()


class _Walk:
    def __init__(self, body: str, on_text: OnText, is_hidden: Callable[[str], bool]) -> None:
        self._body = body
        self._on_text = on_text
        self._is_hidden = is_hidden
        self._pieces: list[str] = []
        self._copied = 0
        # Of each object and list we are in: whether it is an object, and the name it is under.
        self._open: list[tuple[bool, str]] = []
        self._name = ""
        self._wants_name = False
        self._hidden_depth = 0

    def take(self, token: re.Match[str]) -> None:
        start = token.start()
        first = self._body[start]
        if self._hidden_depth:
            self._pass_hidden(first, token.end())
        elif first == '"' and self._wants_name:
            self._take_name(token)
        elif first == ",":
            self._wants_name = bool(self._open) and self._open[-1][0]
        elif first in "}]":
            self._close()
        elif first == ":":
            pass
        elif self._name and self._is_hidden(self._name) and not self._in_list():
            self._hide(first, start, token.end())
        elif first in "{[":
            self._open.append((first == "{", self._name))
            self._wants_name = first == "{"
        elif first == '"':
            self._take_text(token, self._name)

    def end(self) -> str:
        if self._copied == 0:
            return self._body
        return "".join([*self._pieces, self._body[self._copied :]])

    def _in_list(self) -> bool:
        return bool(self._open) and not self._open[-1][0]

    def _take_name(self, token: re.Match[str]) -> None:
        self._wants_name = False
        self._name = _read(token)
        self._take_text(token, "")

    def _take_text(self, token: re.Match[str], name: str) -> None:
        told = self._on_text(name, _read(token))
        if told is not None:
            written = _write(told)
            self._put(token.start(), token.end(), written if token[2] else written[:-1])

    def _close(self) -> None:
        if self._open:
            _, self._name = self._open.pop()
        self._wants_name = False

    def _hide(self, first: str, start: int, end: int) -> None:
        self._put(start, end, _REPLACED)
        if first in "{[":
            self._hidden_depth = 1

    def _pass_hidden(self, first: str, end: int) -> None:
        if first in "{[":
            self._hidden_depth += 1
        elif first in "}]":
            self._hidden_depth -= 1
        self._copied = end

    def _put(self, start: int, end: int, told: str) -> None:
        self._pieces += (self._body[self._copied : start], told)
        self._copied = end


def _read(token: re.Match[str]) -> str:
    inner = token[1]
    if "\\" not in inner:
        return inner
    literal = f'"{inner}"'
    try:
        return msgspec.json.decode(literal, type=str)
    except (msgspec.DecodeError, UnicodeError):  # lone surrogates, for one
        try:
            return str(json.loads(literal, strict=False))
        except ValueError:
            return inner


def _write(text: str) -> str:
    try:
        return msgspec.json.encode(text).decode()
    except UnicodeError:
        return json.dumps(text)
