"""Which rules of a client's Lark have a text at all, as a tree without leaves has none.

The least fixed point: a rule has a text where one way to write it has nothing but what has one.
Terminals have one, and so has whatever is written in a way that is not known here, so that no rule
with a text is taken for one without. An answer that came into a rule without one would go on
without end, or be stuck. Takes time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from headrace.errors import RequestError, shown
from headrace.structured.lark import LITERAL
from headrace.structured.limits import INVALID_GRAMMAR

_RULE = re.compile(
    r"^[ \t]*(?:[?!]*(?P<name>[a-z_]\w*)|[?!]*[A-Z]\w*)(?:\.-?\d+)?[ \t]*(?:\[[^\]\n]*\])?[ \t]*:"
    r"|^[ \t]*%",
    re.MULTILINE | re.ASCII,
)
_PART = re.compile(r"[A-Za-z_]\w*|\x00|[|()\[\]*+?&~:@%]|->|\{[^{}]*\}", re.ASCII)
_NONE_NEEDED = re.compile(r"\{\s*(?:0+\s*(?:,.*)?|,.*)\}", re.DOTALL)
_UNKNOWN = frozenset("&~:@%") | {"->"}
_LITERAL_HERE = "\x00"


def check_rules(lark: str, param: str, *, start: str = "start") -> None:
    """Raises RequestError naming a rule without a text, if an answer may come into one.

    start: what the client calls the first rule.
    """
    rules = _Rules(LITERAL.sub(_without_literal, lark))
    name = rules.without_text()
    if name is not None:
        raise RequestError(
            f"{param}: no text belongs to the rule {shown(start if name == 'start' else name)}, "
            "since each way to write it has it within, or another such rule, without end; give it "
            "a way without, or omit it",
            param=param,
            code=INVALID_GRAMMAR,
        )


def _without_literal(found: re.Match[str]) -> str:
    return "" if found[0].startswith(("#", "//")) else _LITERAL_HERE


class _Rules:
    """The rules of a text without its literals; a group in brackets is a rule of its own."""

    def __init__(self, text: str) -> None:
        self._ways: dict[str, list[list[str]]] = {}
        """By rule, what each way to write it needs."""
        self._within: dict[str, set[str]] = {}
        """By rule, all that may come within, needed or not."""
        self._num_groups = 0
        heads = [*_RULE.finditer(text)]
        ends = [*(head.start() for head in heads[1:]), len(text)]
        for head, end in zip(heads, ends, strict=True):
            if head["name"] is not None:
                self._read(head["name"], text[head.end() : end])

    def without_text(self) -> str | None:
        """A rule without a text that an answer may come into; None if there is none."""
        written = self._written()
        pending, seen = ["start"], {"start"}
        while pending:
            rule = pending.pop()
            if rule not in self._ways:
                continue  # a terminal, or an error that compiling finds
            if rule not in written:
                return self._cause(rule, written)
            new = self._within[rule] - seen
            seen |= new
            pending += sorted(new)
        return None

    def _cause(self, rule: str, written: set[str]) -> str:
        """Of a rule without a text, the one that comes again within itself."""
        met: set[str] = set()
        while rule not in met or rule.startswith("("):
            met.add(rule)
            needed = (part for part in self._ways[rule][0] if part in self._ways)
            rule = next(part for part in needed if part not in written)
        return rule

    def _written(self) -> set[str]:
        """The rules that have a text."""
        missing: dict[tuple[str, int], int] = {}
        needing: dict[str, list[tuple[str, int]]] = {}
        found: list[str] = []
        for rule, ways in self._ways.items():
            for index, way in enumerate(ways):
                needed = {part for part in way if part in self._ways}
                missing[rule, index] = len(needed)
                for part in needed:
                    needing.setdefault(part, []).append((rule, index))
                if not needed:
                    found.append(rule)
        written = set(found)
        for rule in found:  # grows meanwhile
            for place in needing.pop(rule, ()):
                missing[place] -= 1
                if not missing[place] and place[0] not in written:
                    written.add(place[0])
                    found.append(place[0])
        return written

    def _read(self, name: str, body: str) -> None:
        """Add a rule, or more ways to write it."""
        rule, way = name, self._begin(name)
        around: list[tuple[str, list[str]]] = []
        for part in self._parts(body):
            if part in ("(", "["):
                around.append((rule, way))
                self._num_groups += 1
                rule = f"({self._num_groups}"
                way = self._begin(rule)
            elif part in (")", "]"):
                if not around:
                    break  # an error that compiling finds
                group = rule
                rule, way = around.pop()
                self._within[rule].add(group)
                if part == ")":
                    way.append(group)
            elif part == "|":
                way = self._begin(rule)
            elif part in _UNKNOWN:
                self._ways[name].append([])
            elif part in "*?" or _NONE_NEEDED.fullmatch(part):
                del way[-1:]
            elif part != "+" and not part.startswith("{"):
                way.append(part)
                self._within[rule].add(part)

    def _begin(self, rule: str) -> list[str]:
        """What a further way to write a rule needs."""
        way: list[str] = []
        self._ways.setdefault(rule, []).append(way)
        self._within.setdefault(rule, set())
        return way

    def _parts(self, body: str) -> Iterator[str]:
        return (found[0] for found in _PART.finditer(body))
