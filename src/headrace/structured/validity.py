"""Whether answers can be held to a grammar, found out before any model has it.

The tokens are single bytes, so that what is found is true of every vocabulary that has them all.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from headrace.structured.compile import GrammarTokenizer, compiled_over
from headrace.structured.composition import UNFORCED, bodies
from headrace.structured.grammar import Grammar
from headrace.structured.limits import DEFAULT, GrammarLimits, composed_parts
from headrace.structured.vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_NUM_BYTES = 256
_NUM_MARKS = 1024
"""Control tokens that are told apart: more than the marks of any format. Of more, two may be one,
which makes no grammar one without a text."""

_BY_ID = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/|<\[(?P<id>\d+)\]>')
"""A text, an expression, or a token by its id."""


def validate(grammar: Grammar, limits: GrammarLimits = DEFAULT, param: str = "grammar") -> None:
    """Raises RequestError, as `compile_grammar` does, without the tokens of any model; also where
    no text belongs to a part of a composed grammar, which its first mask may not show."""
    tokenizer = _bytes_and_marks()
    if grammar.kind != "composed":
        compiled_over(tokenizer, grammar, limits, param)
        return
    limits.check_size(grammar, param)
    grammar = _renumbered(grammar, param)
    compiled_over(tokenizer, grammar, limits, param)
    for body in bodies(composed_parts(grammar, param)):
        # A schema without a value is found by its walk, or refused as a part of the whole.
        if body.kind != "json_schema":
            compiled_over(tokenizer, body, limits, param)


@cache
def _bytes_and_marks() -> LLTokenizer:
    marks = range(_NUM_BYTES, _NUM_BYTES + _NUM_MARKS)
    tokens = [*(bytes([byte]) for byte in range(_NUM_BYTES)), *(b"<|%d|>" % mark for mark in marks)]
    return GrammarTokenizer(Vocabulary(tokens, marks, lambda text: list(text.encode()))).tokenizer


def _renumbered(grammar: Grammar, param: str) -> Grammar:
    """A composed grammar in which the control tokens of a model are those that are here. A client's
    own Lark stays as it is."""
    numbers: dict[str, int] = {}

    def renumber(found: re.Match[str]) -> str:
        token_id = found["id"]
        if token_id is None:
            return found[0]
        number = numbers.setdefault(token_id, len(numbers))
        return f"<[{_NUM_BYTES + number % _NUM_MARKS}]>"

    parts = composed_parts(grammar, param)
    for part in parts:
        lark = part.get("lark_grammar")
        if lark is not None and not lark.startswith(UNFORCED):
            part["lark_grammar"] = _BY_ID.sub(renumber, lark)
    if not numbers:
        return grammar
    return Grammar("composed", msgspec.json.encode({"grammars": parts}).decode())
