"""The heads of calls that end reasoning: a mark, and all that says which tool is called.

A mark alone does not end it, since a model may well think about how it will call. A head does, as
literal text: whoever reads the answer and whoever counts its reasoning look for the same texts, so
that both have it end at the same place or nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from headrace.answer_formats.call_syntax import CallFormat, CallSyntax, JsonCalls, TaggedCalls

_GAPS = ("\n", "")
"""What models write between a mark and what it announces."""


class CallHead(NamedTuple):
    """The beginning of a call within reasoning."""

    text: str
    """From the mark on, as far as it is a call of one tool and of no other."""
    followers: tuple[str, ...]
    """What may come next: a token may have some of it beside the last of the text."""


def call_heads(calls: CallFormat, mark: str, name: str) -> list[CallHead]:
    """Those with which a call of the tool `name` ends reasoning at a mark of `ends_reasoning`."""
    syntaxes = calls.syntax if isinstance(calls.syntax, tuple) else ()
    heads = (head for syntax in syntaxes for head in _heads(syntax, mark, name))
    return list(dict.fromkeys(heads))


def _heads(syntax: CallSyntax, mark: str, name: str) -> Iterator[CallHead]:
    match syntax:
        case TaggedCalls():
            begin, end = syntax.name
            opened = [mark] if mark == begin else [f"{mark}{gap}{begin}" for gap in _GAPS]
            if mark not in (*syntax.begins, *syntax.bare):
                return
            ends = [end] if end else [gap + next for gap in _GAPS for next in _after_name(syntax)]
            for text in (f"{opening}{name}{closing}" for opening in opened for closing in ends):
                yield CallHead(
                    text, tuple(gap + next for gap in _GAPS for next in _after_name(syntax))
                )
        case JsonCalls() if mark in syntax.begins:
            for gap in _GAPS:
                for comma, colon in ((", ", ": "), (",", ":")):
                    written = json.dumps(name, ensure_ascii=False)
                    members = f'"name"{colon}{written}{comma}"arguments"{colon}'
                    yield CallHead(f"{mark}{gap}{{{members}{{", ('"', "}", "\n"))


def _after_name(syntax: TaggedCalls) -> tuple[str, str]:
    """What comes after the name of a call: its first parameter, or its end."""
    return syntax.key[0], syntax.end
