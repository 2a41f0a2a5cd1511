"""A recogniser of llama.cpp's notation of grammars (GBNF), made of its description alone.

It parses a text as Earley did: `columns[i]` holds every place within an alternative that can be
reached after i characters, with the column where that alternative began. It knows nothing of Lark,
llguidance or tokens, so that what they make of a grammar can be compared with what it says.

Source: llama.cpp, grammars/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MOST_REPEATS = 64


class Characters(NamedTuple):
    """A set of characters."""

    ranges: tuple[tuple[int, int], ...]
    negated: bool = False

    def has(self, character: str) -> bool:
        """Whether a character is one of them."""
        number = ord(character)
        return any(low <= number <= high for low, high in self.ranges) != self.negated


Symbol = str | Characters
Rules = dict[str, list[tuple[Symbol, ...]]]

_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)|(?P<define>[A-Za-z0-9-]+\s*::=)|(?P<name>[A-Za-z0-9-]+)
    |(?P<text>"(?:\\.|[^"\\])*")|(?P<class>\[\^?(?:\\.|[^\]\\])*\])
    |(?P<times>[*+?]|\{\d+(?:,\d*)?\})|(?P<mark>[|().])""",
    re.VERBOSE | re.DOTALL,
)
_CHARACTER = re.compile(
    r"\\x([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\(.)|([^\\])", re.DOTALL
)
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}


class Gbnf:
    """A grammar whose rule `root` has the texts. Raises ValueError where it cannot be read."""

    def __init__(self, text: str) -> None:
        self.rules: Rules = {}
        self._tokens = [*_tokens(text)]
        self._at = 0
        while self._at < len(self._tokens):
            kind, token = self._next()
            if kind != "define":
                raise ValueError(f"{token!r} is not the beginning of a rule")
            self.rules[token.removesuffix("::=").strip()] = self._alternatives()
        del self._tokens
        used = {part for rule in self.rules.values() for way in rule for part in way}
        missing = {part for part in used if isinstance(part, str)} - self.rules.keys()
        if missing or "root" not in self.rules:
            raise ValueError(f"rules are missing: {sorted(missing) or 'root'}")
        self._nullable = self._found_nullable()

    def has(self, text: str) -> bool:
        """Whether a text is one of the grammar's."""
        *_, last = self.prefixes(text)
        return last is True

    def prefixes(self, text: str) -> Iterator[bool | None]:
        """For the beginning of 0, 1, 2, ... characters: whether it is a text of the grammar, None
        where nothing can make it one (if every rule has a text)."""
        columns: list[set[tuple[str, int, int, int]]] = []
        column = {("root", way, 0, 0) for way in range(len(self.rules["root"]))}
        for index in range(len(text) + 1):
            columns.append(column)
            self._complete(columns)
            if not column:
                yield from [None] * (len(text) + 1 - index)
                return
            yield any(
                name == "root" and begun == 0 and place == len(self.rules[name][way])
                for name, way, place, begun in column
            )
            column = set()
            for name, way, place, begun in columns[-1] if index < len(text) else ():
                symbols = self.rules[name][way]
                if place < len(symbols):
                    symbol = symbols[place]
                    if isinstance(symbol, Characters) and symbol.has(text[index]):
                        column.add((name, way, place + 1, begun))

    def _complete(self, columns: list[set[tuple[str, int, int, int]]]) -> None:
        """Add to the last column what follows without a further character."""
        here = len(columns) - 1
        column = columns[here]
        pending = list(column)
        while pending:
            name, way, place, begun = pending.pop()
            symbols = self.rules[name][way]
            new: list[tuple[str, int, int, int]] = []
            if place == len(symbols):
                for other, its_way, at, since in tuple(columns[begun]):
                    inner = self.rules[other][its_way]
                    if at < len(inner) and inner[at] == name:
                        new.append((other, its_way, at + 1, since))
            elif isinstance(symbol := symbols[place], str):
                new += [(symbol, each, 0, here) for each in range(len(self.rules[symbol]))]
                if symbol in self._nullable:
                    new.append((name, way, place + 1, begun))
            for item in new:
                if item not in column:
                    column.add(item)
                    pending.append(item)

    def _found_nullable(self) -> set[str]:
        found: set[str] = set()
        while True:
            more = {
                name
                for name, ways in self.rules.items()
                if any(all(part in found for part in way) for way in ways)
            }
            if more == found:
                return found
            found = more

    def _next(self) -> tuple[str, str]:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _alternatives(self) -> list[tuple[Symbol, ...]]:
        ways = [self._sequence()]
        while self._peek() == ("mark", "|"):
            self._next()
            ways.append(self._sequence())
        return ways

    def _sequence(self) -> tuple[Symbol, ...]:
        parts: list[tuple[Symbol, ...]] = []
        while True:
            kind, token = self._peek()
            if kind in ("define", "end") or token in ("|", ")"):
                return tuple(symbol for part in parts for symbol in part)
            self._next()
            if kind == "times":
                if not parts:
                    raise ValueError(f"{token} repeats nothing")
                parts[-1] = (self._repeated(parts[-1], token),)
            elif kind == "text":
                parts.append(tuple(Characters(((c, c),)) for c in _numbers(token[1:-1])))
            elif kind == "class":
                parts.append((_class(token),))
            elif kind == "name":
                parts.append((token,))
            elif token == ".":
                parts.append((Characters((), negated=True),))
            else:
                parts.append((self._rule(self._alternatives()),))
                if self._peek() != ("mark", ")"):
                    raise ValueError("a bracket is not closed")
                self._next()

    def _repeated(self, part: tuple[Symbol, ...], token: str) -> str:
        if token[0] != "{":
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[token]
        else:
            low, comma, high = token[1:-1].partition(",")
            least = int(low)
            most = int(high) if high else None if comma else least
        if max(least, most or 0) > MOST_REPEATS:
            raise ValueError(f"more than {MOST_REPEATS} repeats")
        if most is None:
            tail = f"*{len(self.rules)}"
            self.rules[tail] = [(), (*part, tail)]
            return self._rule([part * least + (tail,)])
        return self._rule([part * times for times in range(least, most + 1)])

    def _rule(self, ways: list[tuple[Symbol, ...]]) -> str:
        name = f"*{len(self.rules)}"
        self.rules[name] = ways
        return name


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"{text[at : at + 20]!r} cannot be read")
        at = found.end()
        if found.lastgroup is not None and found.lastgroup != "space":
            yield found.lastgroup, found[0]


def _numbers(text: str) -> list[int]:
    return [_number(found) for found in _CHARACTER.finditer(text)]


def _number(found: re.Match[str]) -> int:
    *hexadecimal, escaped, plain = found.groups()
    digits = next(filter(None, hexadecimal), None)
    if digits is not None:
        return int(digits, 16)
    return ord(_NAMED.get(escaped, escaped) if escaped is not None else plain)


def _class(token: str) -> Characters:
    inside = token[1:-1]
    negated = inside.startswith("^")
    found = list(_CHARACTER.finditer(inside[1:] if negated else inside))
    ranges = []
    while found:
        low = _number(found.pop(0))
        if len(found) > 1 and found[0][0] == "-":
            found.pop(0)
            ranges.append((low, _number(found.pop(0))))
        else:
            ranges.append((low, low))
    return Characters(tuple(ranges), negated)
