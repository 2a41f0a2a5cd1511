"""Grammars made of grammars: one in Lark, which refers to parts of any kind by their names.

Every part keeps the names of its own rules to itself, so that a client's grammar can stand within
ours. Equal parts give an equal value, whatever they were made for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headrace.structured.grammar import Grammar

_ESCAPED_OR_SLASH = re.compile(r"\\.|/", re.DOTALL)
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")


UNFORCED = '%llguidance {"no_forcing": true}\n'
"""Before a client's own Lark. llguidance writes out the text that has to follow, and lexemes that
swallow what must come after them ("b"+ "b") have such a text without end: it would be written for
ever, whatever the limits. Without it such an answer goes on until its request ends."""


class Composition:
    """The rules of a grammar in Lark, and the parts that they refer to."""

    def __init__(
        self, special: Mapping[str, int], has_text: Callable[[Grammar], bool] = lambda _: True
    ) -> None:
        """special: the texts of the model's control tokens and their ids. No text of a grammar is
        spelled with them, so that a mark that is one of them is written by its id. has_text:
        whether any text belongs to a grammar, for `is_matched`; all have one if it is not given."""
        self._special = dict(special)
        self._has_text = has_text
        self._marks = re.compile(
            "|".join(map(re.escape, sorted(self._special, key=len, reverse=True))) or r"(?!)"
        )
        self._rules: list[str] = []
        self._parts: list[dict[str, Any]] = []
        self._names: dict[Grammar, str] = {}

    def is_special(self, mark: str) -> bool:
        """Whether a mark is one control token."""
        return mark in self._special

    def before_special(self, mark: str) -> str | None:
        """What a mark has before its first control token, which no ordinary text runs into; None
        if it has no such token."""
        found = self._marks.search(mark)
        return None if found is None else mark[: found.start()]

    def text(self, text: str) -> str:
        """A text as Lark; marks within it that are control tokens are these tokens."""
        out: list[str] = []
        at = 0
        for mark in self._marks.finditer(text):
            out.append(quoted(text[at : mark.start()]))
            out.append(f"<[{self._special[mark[0]]}]>")
            at = mark.end()
        out.append(quoted(text[at:]))
        return " ".join(filter(None, out))

    def rule(self, body: str, *, options: str = "", terminal: bool = False) -> str:
        """Add a rule of our own; its name.

        options: as of llguidance's rules, such as "lazy". terminal: it is one expression.
        """
        name = f"{'T' if terminal else 'r'}{len(self._rules)}"
        self._rules.append(f"{name}{f'[{options}]' if options else ''}: {body}")
        return name

    def is_matched(self, terminal: str) -> bool:
        """Whether any text matches the body of a terminal that refers to no other."""
        return self._has_text(Grammar("lark", f"start: T\nT: {terminal}"))

    def part(self, grammar: Grammar) -> str:
        """A grammar of any kind, by the name to refer to it."""
        if grammar not in self._names:
            number = len(self._parts)
            name = self._names[grammar] = f"p{number}"
            self._parts += _renamed(parts_of(grammar), name)
        return f"@{self._names[grammar]}"

    def extent(self) -> tuple[int, int, int]:
        """How much was added so far, for `cut`."""
        return len(self._rules), len(self._parts), len(self._names)

    def cut(self, extent: tuple[int, int, int]) -> None:
        """Drop all that was added since; nothing that stays may refer to it."""
        num_rules, num_parts, num_names = extent
        del self._rules[num_rules:], self._parts[num_parts:]
        for grammar in [*self._names][num_names:]:
            del self._names[grammar]

    def grammar(self, start: str) -> Grammar:
        """The whole, which begins with a rule's body."""
        lark = "\n".join((f"start: {start}", *self._rules))
        whole = {"grammars": [{"lark_grammar": lark}, *self._parts]}
        return Grammar("composed", msgspec.json.encode(whole).decode())


def quoted(text: str) -> str:
    """A text as Lark writes it, "" for the empty one, which has no symbol."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def expression(text: str) -> str:
    """A text as an expression that matches it and nothing else."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def slashed(pattern: str) -> str:
    """An expression between slashes, as Lark writes it."""
    escaped = _ESCAPED_OR_SLASH.sub(lambda found: r"\/" if found[0] == "/" else found[0], pattern)
    return "/" + escaped.replace("\n", r"\n") + "/"


def parts_of(grammar: Grammar) -> list[dict[str, Any]]:
    """A grammar as llguidance takes several; the first is the whole. The text is trusted to be
    what its kind says."""
    if grammar.kind == "composed":
        return list(msgspec.json.decode(grammar.text)["grammars"])
    if grammar.kind == "json_schema":
        return [{"json_schema": msgspec.json.decode(grammar.text)}]
    if grammar.kind == "lark":
        return [{"lark_grammar": UNFORCED + grammar.text}]
    pattern = grammar.text
    if grammar.kind == "choice":
        pattern = choice_pattern(msgspec.json.decode(grammar.text))
    return [{"lark_grammar": f"start: {slashed(pattern)}"}]


def bodies(parts: Sequence[Mapping[str, Any]]) -> Iterator[Grammar]:
    """The named ones of the parts of a composed grammar, each as a grammar of its own."""
    named = {part["name"]: part for part in parts if "name" in part}
    for name, part in named.items():
        if "json_schema" in part:
            yield Grammar("json_schema", msgspec.json.encode(part["json_schema"]).decode())
            continue
        used = [name]
        for each in used:  # grows meanwhile
            found = _REFERENCE.finditer(named[each].get("lark_grammar", ""))
            referred = dict.fromkeys(reference["name"] for reference in found)
            used += [other for other in referred if other in named and other not in used]
        unnamed = {"lark_grammar": part["lark_grammar"]}
        whole = {"grammars": [unnamed, *(named[each] for each in used[1:])]}
        yield Grammar("composed", msgspec.json.encode(whole).decode())


def choice_pattern(choices: Sequence[str]) -> str:
    """An expression of some texts."""
    return "|".join(map(expression, dict.fromkeys(choices)))


_REFERENCE = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/|@(?P<name>\w+)', re.DOTALL)


def _renamed(parts: list[dict[str, Any]], prefix: str) -> list[dict[str, Any]]:
    """Parts under names that no other part has."""
    names = {part["name"]: f"{prefix}{part['name']}" for part in parts if "name" in part}

    def refer(found: re.Match[str]) -> str:
        name = found["name"]
        return f"@{names[name]}" if name in names else found[0]

    renamed: list[dict[str, Any]] = []
    for index, part in enumerate(parts):
        name = prefix if index == 0 else names[part["name"]]
        lark = part.get("lark_grammar")
        body = {"json_schema": part["json_schema"]} if lark is None else {"lark_grammar": lark}
        if lark is not None and names:
            body = {"lark_grammar": _REFERENCE.sub(refer, lark)}
        renamed.append({"name": name, **body})
    return renamed
