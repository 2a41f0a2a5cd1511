"""How large a grammar may be, and what compiling it and each of its masks may take.

What llguidance counts (fuel, items, states) is time and memory that do not depend on the machine:
the same grammar is refused everywhere, or nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import RequestError
from headrace.structured.grammar import Grammar

if TYPE_CHECKING:
    from llguidance import LLParserLimits

INVALID_GRAMMAR = "invalid_grammar"
GRAMMAR_TOO_LARGE = "grammar_too_large"

_LITERAL = re.compile(r'\\.|"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/', re.DOTALL)
_ESCAPE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_BRACKET = re.compile(r"[()\[\]{}]")
_TOO_LARGE_WORDS = (
    "fuel",
    "lexer error",
    "too large",
    "too big",
    "too many",
    "limit",
    "max is",
    "too complex",
    "nest",
)
"""Of what llguidance says where one of its limits ends a grammar."""


class GrammarLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a grammar; the defaults are those of every request."""

    text_bytes: int = 1 << 19
    """Of the grammar's text: more than the largest schema that is known to be in use."""
    depth: int = 100
    """Of brackets, or of objects and arrays in JSON: what reads them recurses."""
    compile_fuel: int = 1_000_000
    """Of the expressions of a grammar, while it is compiled; 20 ms."""
    entries: int = 2000
    """Of one object in a schema: the work for optional properties grows with their square."""
    productions: int = 40_000
    """Symbols in a compiled grammar."""
    step_fuel: int = 200_000
    """Of the expressions, for one token; 15 ms."""
    step_items: int = 50_000
    """Of the parser, for one token; 3 ms."""
    lexer_states: int = 20_000
    """That the expressions come to while an answer is written; 1 to 2 KB each."""

    def check_size(self, grammar: Grammar, param: str = "grammar") -> None:
        """Raises RequestError where the text is too large."""
        size = len(grammar.text.encode("utf-8", "replace"))
        if size > self.text_bytes:
            raise RequestError(
                f"{param} has {size} bytes; at most {self.text_bytes} are accepted. Shorten it.",
                param=param,
                code=GRAMMAR_TOO_LARGE,
            )

    def check(self, grammar: Grammar, param: str = "grammar") -> None:
        """Raises RequestError where the text is too large, too deep, or not JSON where it must be.
        Takes time in proportion to a text that is not too large."""
        self.check_size(grammar, param)
        if grammar.kind == "composed":
            for part in composed_parts(grammar, param):
                lark = part.get("lark_grammar")
                text = lark or msgspec.json.encode(part.get("json_schema")).decode()
                self._check_inner(Grammar("lark" if lark else "json_schema", text), param)
        else:
            self._check_inner(grammar, param)

    def _check_inner(self, grammar: Grammar, param: str) -> None:
        depth = depth_of(grammar, param)
        if depth > self.depth:
            raise RequestError(
                f"{param} is nested {depth} deep; at most {self.depth} are accepted. Name inner "
                "parts ($defs, rules) and refer to them.",
                param=param,
                code=GRAMMAR_TOO_LARGE,
            )
        if (
            grammar.kind == "json_schema"
            and (most := _most_entries(json_of(grammar, param))) > self.entries
        ):
            raise RequestError(
                f"{param} has an object of {most} entries; at most {self.entries} are "
                "accepted. Split it.",
                param=param,
                code=GRAMMAR_TOO_LARGE,
            )

    def of_parser(self) -> LLParserLimits:
        """As llguidance takes them."""
        from llguidance import LLParserLimits

        return LLParserLimits(
            initial_lexer_fuel=self.compile_fuel,
            max_grammar_size=self.productions,
            step_lexer_fuel=self.step_fuel,
            step_max_items=self.step_items,
            max_lexer_states=self.lexer_states,
            verbose_errors=False,
        )


DEFAULT = GrammarLimits()


def is_beyond_a_limit(reason: str) -> bool:
    """Whether these words of llguidance are about a limit, and not about what a grammar says."""
    lowered = reason.lower()
    return any(word in lowered for word in _TOO_LARGE_WORDS)


def depth_of(grammar: Grammar, param: str = "grammar") -> int:
    """How deep brackets, or objects and arrays, are nested. RequestError for JSON that is none."""
    if grammar.kind in ("json_schema", "choice"):
        return _depth_of_json(json_of(grammar, param))
    ignored = _LITERAL if grammar.kind == "lark" else _ESCAPE
    depth = deepest = 0
    for bracket in _BRACKET.findall(ignored.sub("", grammar.text)):
        depth = depth + 1 if bracket in "([{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


def json_of(grammar: Grammar, param: str = "grammar") -> Any:
    """The value of a grammar whose text is JSON. RequestError where it is not."""
    try:
        return msgspec.json.decode(grammar.text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise RequestError(
            f"{param} is not JSON: {error}", param=param, code=INVALID_GRAMMAR
        ) from error
    except RecursionError as error:
        raise RequestError(
            f"{param} is JSON nested too deep; name inner parts ($defs) and refer to them",
            param=param,
            code=GRAMMAR_TOO_LARGE,
        ) from error


def composed_parts(grammar: Grammar, param: str = "grammar") -> list[dict[str, Any]]:
    """The grammars of which a composed one is made. RequestError where it is something else."""
    whole = json_of(grammar, param)
    parts = whole.get("grammars") if isinstance(whole, dict) and len(whole) == 1 else None
    if not isinstance(parts, list) or not parts:
        raise _not_composed(param)
    for part in parts:
        match part:
            case {"lark_grammar": str(), **others} if others.keys() <= {"name"}:
                pass
            case {"json_schema": dict(), **others} if others.keys() <= {"name"}:
                pass
            case _:
                raise _not_composed(param)
    return parts


def _not_composed(param: str) -> RequestError:
    return RequestError(
        f"{param} is not composed of grammars in Lark and schemas",
        param=param,
        code=INVALID_GRAMMAR,
    )


def _depth_of_json(value: Any) -> int:
    return sum(1 for _ in _levels(value))


def _most_entries(value: Any) -> int:
    """Of any object within."""
    return max(
        (len(each) for level in _levels(value) for each in level if isinstance(each, dict)),
        default=0,
    )


def _levels(value: Any) -> Iterator[list[Any]]:
    """Objects and arrays by their depth, from the outermost."""
    level = [value]
    while level := [each for each in level if isinstance(each, (dict, list))]:
        yield level
        level = [
            inner for each in level for inner in (each.values() if isinstance(each, dict) else each)
        ]
