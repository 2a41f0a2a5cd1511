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
from headrace.structured.composition import UNFORCED
from headrace.structured.forced_text import MAX_FORCED_BYTES, forced_by, num_bytes
from headrace.structured.grammar import Grammar

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits

INVALID_GRAMMAR = "invalid_grammar"
GRAMMAR_TOO_LARGE = "grammar_too_large"

_LITERAL = re.compile(r'\\.|"(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/', re.DOTALL)
_ESCAPE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_BRACKET = re.compile(r"[()\[\]{}]")
_SYMBOL = re.compile(r'(?://|\#)[^\n]*|("(?:\\.|[^"\\\n])*"|/(?:\\.|[^/\\\n])+/|[A-Za-z_]\w*)')
_MOST_ITEMS_OF_SYMBOLS = 800_000
"""Of a token, times the symbols of the rules: what is at a place grows with them, and the time of
each item with that."""
_LEAST_STEP_ITEMS = 2000
"""Of a token, however many symbols there are: a grammar of 1,600 commands takes as many."""
_MOST_ROW_OF_SYMBOLS = 1000
"""Items at one place for rules of many symbols: pairs of them are looked at, 65 ms for as many."""
_REPEATED = re.compile(r'"(?:\\.|[^"\\])*"|(?m:^[ \t]+[^\n]*$)', re.DOTALL)
"""What llguidance repeats of a grammar: in quotes, or on lines that are set in."""
_BEYOND = re.compile(
    r"fuel exhausted|relevance check fuel|lexer error:|schema too large|too big \(limit for this"
    r"|too many (?:expressions constructed|states:|items)|items; max is|too deeply nested"
    r"|maximum number of nested|number too large to fit|is too large; must be",
    re.IGNORECASE,
)
"""What llguidance says where one of its limits ends a grammar."""


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
    literal_bytes: int = MAX_FORCED_BYTES
    """Of a text that an answer has to repeat in one go: a literal, a choice, "a{20000}". Schemas
    have the same bound by their walk, which knows where it is (`json_schema/runs.py`), and the
    parts of a structural tag where they are joined. Here each part of a composed grammar is
    counted alone."""
    productions: int = 40_000
    """Symbols in a compiled grammar."""
    step_fuel: int = 200_000
    """Of the expressions, for one token: 8 ms where one is costly, and up to 68 ms was seen where
    100 of them fit at once."""
    step_items: int = 20_000
    """Of the parser, for one token, where a grammar is made of schemas: the most that 1,024 tools
    took. 50,000 were up to 317 ms where 400 alternatives of a schema fit at once."""
    row_items: int = 2000
    """Of the parser, at one place, where a grammar is made of schemas: two for each alternative."""
    written_step_items: int = 50_000
    """Of the parser, for one token, in rules that a client wrote: with few symbols."""
    written_row_items: int = 256
    """Of the parser, at one place, in rules that a client wrote, or as many as they have symbols.

    Rules of free form may be ambiguous. Each item of a place is then found again in many ways, and
    looked for among all others: 65 ns for each pair of items at a place. 50,000 items for a token
    and 2,000 at a place were 3 s of one step. With these limits a token took 40 ms at most of some
    40 ambiguous grammars, over a vocabulary of 8,192."""
    lexer_states: int = 20_000
    """That the expressions come to while an answer is written; 1 to 2 KB each."""

    @property
    def shared_fuel(self) -> int:
        """Of the expressions, for all that was read of a grammar since it was compiled: as long as
        that is all, no answer of it can have taken `step_fuel` for one token, had it been alone.
        Half of that, since what is read behind a mask is counted with the next one."""
        return self.step_fuel // 2

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
            raise _too_large(
                f"{param} is nested {depth} deep; at most {self.depth} are accepted. Name inner "
                "parts ($defs, rules) and refer to them.",
                param,
            )
        if (
            grammar.kind == "json_schema"
            and (most := _most_entries(json_of(grammar, param))) > self.entries
        ):
            raise _too_large(
                f"{param} has an object of {most} entries; at most {self.entries} are "
                "accepted. Split it.",
                param,
            )
        length = _longest_literal(grammar, param)
        if length > self.literal_bytes:
            raise _too_large(
                f"{param} leaves no choice about {length} bytes of an answer; at most "
                f"{self.literal_bytes} are accepted in one go. Shorten the text, or allow "
                "any text there and insert it yourself.",
                param,
            )

    def of_parser(self, grammar: Grammar) -> LLParserLimits:
        """As llguidance takes them. A grammar that passed `check`."""
        from llguidance import LLParserLimits

        step_items, row_items = self.step_items, self.row_items
        if (written := _written_lark(grammar)) is not None:
            symbols = _num_symbols(written)
            shared = _MOST_ITEMS_OF_SYMBOLS // max(1, symbols)
            step_items = min(self.written_step_items, max(_LEAST_STEP_ITEMS, shared))
            row_items = max(self.written_row_items, min(symbols, _MOST_ROW_OF_SYMBOLS))
        return LLParserLimits(
            initial_lexer_fuel=self.compile_fuel,
            max_grammar_size=self.productions,
            max_items_in_row=row_items,
            step_lexer_fuel=self.step_fuel,
            step_max_items=step_items,
            max_lexer_states=self.lexer_states,
            verbose_errors=True,  # what matchers took is told there alone (compile.py)
        )


DEFAULT = GrammarLimits()


def error_of(matcher: LLMatcher) -> str:
    """What is wrong with a matcher, without its state and its grammar."""
    return matcher.get_error().partition("\n<state>")[0]


def is_beyond_a_limit(reason: str) -> bool:
    """Whether these words of llguidance are about a limit, and not about what a grammar says."""
    return _BEYOND.search(_REPEATED.sub("", reason)) is not None


def is_of_all_answers(reason: str) -> bool:
    """Whether these words of llguidance are about a limit that the answers of a grammar and guesses
    of them meet together: `lexer_states`, and `step_fuel`, behind which what they share is of no
    use to any of them; and whether it is `TAKEN_TOGETHER`."""
    return "too many states" in reason or "too many expressions constructed" in reason


TAKEN_TOGETHER = "too many expressions constructed by all answers"
"""Of a grammar whose matchers together took more than `shared_fuel`, in llguidance's words."""

NO_TEXT = "no text belongs to it"


def is_without_text(reason: str) -> bool:
    """Whether these words of llguidance are about a grammar of no text, or of none that goes on
    as the answer has begun."""
    return reason.lstrip().startswith("NoExtension")


def _longest_literal(grammar: Grammar, param: str) -> int:
    """Bytes of the longest text that an answer has to repeat in one go; of schemas, none."""
    if grammar.kind == "choice":
        choices = json_of(grammar, param)
        texts = choices if isinstance(choices, list) else []
        return max((num_bytes(text) for text in texts if isinstance(text, str)), default=0)
    if grammar.kind == "regex":
        return forced_by(grammar.text).run
    if grammar.kind == "lark":
        return max(map(_literal_bytes, _SYMBOL.findall(grammar.text)), default=0)
    return 0


def _literal_bytes(symbol: str) -> int:
    """Of a symbol of Lark: a text, an expression, or a name, which has none."""
    if symbol.startswith("/"):
        return forced_by(symbol[1:-1]).run
    return num_bytes(symbol) if symbol.startswith('"') else 0


def _num_symbols(lark: str) -> int:
    return sum(map(bool, _SYMBOL.findall(lark)))


def _written_lark(grammar: Grammar) -> str | None:
    """The rules that a client wrote, alone or within a composed grammar; None where all are ours
    or of schemas, and are not ambiguous."""
    if grammar.kind == "lark":
        return grammar.text
    if grammar.kind != "composed" or "no_forcing" not in grammar.text:
        return None
    parts = [part.get("lark_grammar", "") for part in composed_parts(grammar)]
    written = [part[len(UNFORCED) :] for part in parts if part.startswith(UNFORCED)]
    return "\n".join(written) if written else None


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


def _too_large(why: str, param: str) -> RequestError:
    return RequestError(why, param=param, code=GRAMMAR_TOO_LARGE)


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
