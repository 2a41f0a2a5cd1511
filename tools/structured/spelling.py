"""Why a valid instance is refused: found by writing it in every way its grammar might take.

An answer is compact JSON with the properties in one order and every number and text in one
spelling. `ways` writes an instance into a matcher, going back wherever it is refused: first as
Python's `json` does, then with properties in any order, then with numbers and texts spelled
otherwise. What departs least of those that are accepted is the cause.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from tools.structured.language import Language, LimitError

AS_WRITTEN = "accepted"
ORDER = "order of properties"
NUMBERS = "form of numbers"
TEXTS = "escapes in texts"
LIMIT = "limit of a step"
OTHER = "other"
GAVE_UP = "search gave up"

MOST_TRIES = 20_000
"""Of texts that are written into a matcher, in one search."""
_MOST_NUMBER = 10**300


def has_in_some_order(language: Language, value: Any, most_tries: int) -> bool:
    """Whether an instance is accepted with its properties in some order that was looked at."""
    try:
        return _Search(language, True, False, False, most_tries).finds(value)
    except (_GaveUpError, LimitError):
        return False


class _GaveUpError(Exception):
    """The search took more tries than it may."""


def cause(language: Language, value: Any, most_tries: int = MOST_TRIES) -> str:
    """What had to be changed of an instance's compact JSON for it to be accepted."""
    for name, any_order, any_number, any_text in (
        (AS_WRITTEN, False, False, False),
        (ORDER, True, False, False),
        (NUMBERS, True, True, False),
        (TEXTS, True, True, True),
    ):
        try:
            search = _Search(language, any_order, any_number, any_text, most_tries)
            if search.finds(value):
                return name
        except _GaveUpError:
            return GAVE_UP
        except LimitError:
            return LIMIT
    return OTHER


class _Search:
    """One search: a matcher, and what may be written otherwise."""

    def __init__(
        self,
        language: Language,
        any_order: bool,
        any_number: bool,
        any_text: bool,
        most_tries: int,
    ) -> None:
        self._language = language
        self._matcher = language.matcher()
        self._any_order = any_order
        self._any_number = any_number
        self._any_text = any_text
        self._left = most_tries
        self._dead: set[tuple[str, frozenset[str]]] = set()

    def finds(self, value: Any) -> bool:
        """Whether some way of writing the value is accepted."""
        return any(self._matcher.is_accepting() for _ in self._value(value, "#"))

    def _text(self, text: str) -> Iterator[None]:
        """Yields with the text read, and takes it back afterwards."""
        self._left -= 1
        if self._left < 0:
            raise _GaveUpError
        data = list(text.encode("utf-8", "surrogatepass"))
        self._language.allowed(self._matcher)
        read = self._matcher.try_consume_tokens(data)
        if read == len(data):
            yield
        else:
            self._language.allowed(self._matcher)  # where a limit refused it, this raises
        if read and not self._matcher.rollback(read):
            raise RuntimeError("a text cannot be taken back")

    def _value(self, value: Any, path: str) -> Iterator[None]:
        if isinstance(value, dict):
            for _ in self._text("{"):
                yield from self._members(value, tuple(value), path)
        elif isinstance(value, list):
            for _ in self._text("["):
                yield from self._items(value, 0, path)
        else:
            for text in self._leaves(value):
                yield from self._text(text)

    def _members(self, value: dict[str, Any], left: tuple[str, ...], path: str) -> Iterator[None]:
        if not left:
            yield from self._text("}")
            return
        key = (path, frozenset(left))
        if key in self._dead:
            return
        comma = "" if len(left) == len(value) else ","
        ends = False
        for name in left if self._any_order else left[:1]:
            rest = tuple(other for other in left if other != name)
            for spelled in self._spelled(name):
                for _ in self._text(f"{comma}{spelled}:"):
                    for _ in self._value(value[name], f"{path}/{name}"):
                        for _ in self._members(value, rest, path):
                            ends = True
                            yield
        if not ends:
            self._dead.add(key)

    def _items(self, value: list[Any], index: int, path: str) -> Iterator[None]:
        if index == len(value):
            yield from self._text("]")
            return
        for _ in self._text("," if index else ""):
            for _ in self._value(value[index], f"{path}/{index}"):
                yield from self._items(value, index + 1, path)

    def _leaves(self, value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield from self._spelled(value)
            return
        plain = json.dumps(value)
        yield plain
        if not self._any_number or isinstance(value, bool) or value is None:
            return
        if isinstance(value, float) and value.is_integer() and abs(value) < _MOST_NUMBER:
            yield str(int(value))
        if isinstance(value, int):
            yield f"{value}.0"
        if isinstance(value, float):
            yield from (f"{plain}{'0' * zeros}" for zeros in (1, 2, 3) if "e" not in plain)
            yield f"{Decimal(plain):f}"
            yield f"{value:e}"

    def _spelled(self, text: str) -> Iterator[str]:
        yield json.dumps(text, ensure_ascii=False)
        if self._any_text:
            yield json.dumps(text)
            yield json.dumps(text, ensure_ascii=False).replace("/", "\\/")
