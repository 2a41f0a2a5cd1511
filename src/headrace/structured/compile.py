"""From a grammar to a machine that says which token may come next; llguidance does the work.

It is imported when the first grammar comes. Whatever is wrong with a grammar is a RequestError.
Everything here may be called from any thread; compiling lets other threads run.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from headrace.errors import RequestError
from headrace.structured.composition import UNFORCED, bodies, choice_pattern
from headrace.structured.give_way import give_way
from headrace.structured.grammar import Grammar
from headrace.structured.json_schema.fault import keywords_of, place_of, unsatisfiable_place
from headrace.structured.json_schema.grammar import COMPACT
from headrace.structured.json_schema.walk import UNSUPPORTED_SCHEMA, pointer_text
from headrace.structured.limits import (
    DEFAULT,
    GRAMMAR_TOO_LARGE,
    INVALID_GRAMMAR,
    NO_TEXT,
    GrammarLimits,
    composed_parts,
    error_of,
    is_beyond_a_limit,
    is_without_text,
    json_of,
)

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer
    from llguidance._lib import JsonCompileOptions

    from headrace.structured.vocabulary import Vocabulary

_MAX_REASON_CHARS = 400
_LEXER_COST = re.compile(r'"lexer_cost": (\d+)')
_stack_size = threading.Lock()

STACK_BYTES = 1 << 29
"""Of the thread that compiles: 5 KB for each rule of a chain. Only what is used takes memory."""

UNHINDERED_S = 0.05
"""After which a thread that compiles gives way to others: schemas in use take a few ms."""

MAX_KEPT_TEXTS = 4096
"""Forced texts whose ids are kept, of a model's grammars together: 2 MB of short ones."""

MAX_KEPT_CHARS = 256
"""Of such a text; a longer one is cut into ids every time."""

MAX_CUT_CHARS = 1024
"""Of a forced text that is cut into ids at once. They are looked up at every step of it, and
cutting all of 16 KB took 10 ms each time."""

OVERLAP_CHARS = 128
"""At the end of what is cut of a longer text, which the text behind it may cut in another way: no
id of them is used. They are more than a word and the white space before it."""

FREE_TEXT = "[^<]+"
"""Tokens whose mask is kept whole: those of free text that ends at a mark (free_text.py), which
costs 20 us a token with it and 400 us without, in a vocabulary of 49,000."""

OPTIONS = "x-guidance"
"""Where a schema has llguidance's options."""

EXACT: Any = {"lenient": False, "coerce_one_of": False}
"""Of every schema: what llguidance cannot hold an answer to is an error and never ignored."""


class CompiledGrammar:
    """A grammar over the tokens of one model, ready to be matched any number of times.

    Its matchers share the states that their expressions came to, and so the limit of these: one
    that meets it has the grammar made `anew`, and whoever keeps the grammar gives it to no other.
    """

    def __init__(self, make: Callable[[], LLMatcher], shared_fuel: int) -> None:
        """make: compiles it; called at once, and by `anew`. shared_fuel: of `GrammarLimits`."""
        self.is_full = False
        """Whether its matchers came to as many states as they may, so that none can go on."""
        self.num_answers = 0
        """Answers that were begun to be read with it."""
        self.has_read_guesses = False
        """Whether anything was read that is not certain to be an answer's."""
        self._make = make
        self._shared_fuel = shared_fuel
        self._matcher = make()
        self._compiling_took = _taken(self._matcher)

    def matcher(self) -> LLMatcher:
        """A matcher at the beginning of an answer."""
        return self._matcher.deep_copy()

    def anew(self) -> CompiledGrammar:
        """The same grammar without the states that answers came to; this one is full."""
        self.is_full = True
        return CompiledGrammar(self._make, self._shared_fuel)

    def is_certain(self, matcher: LLMatcher) -> bool:
        """Whether what all matchers took up to the last mask of this one is so little that none of
        them can have saved another one from its limit. Takes 3 us."""
        return _taken(matcher) - self._compiling_took <= self._shared_fuel


def _taken(matcher: LLMatcher) -> int:
    """Expressions that the matchers of a grammar came to, together, up to the last mask of this
    one. llguidance says it where it says what is wrong with a matcher, so that a copy, which shares
    what is counted, is made to do what it cannot do."""
    failing = matcher.deep_copy()
    failing.reset()  # what it has read would be said as well
    failing.rollback(1)
    found = _LEXER_COST.search(failing.get_error())
    assert found is not None, "of a grammar compiled with verbose errors"
    return int(found[1])


class GrammarTokenizer:
    """A model's vocabulary as llguidance reads it. Making it takes about a second, for grammars of
    any number."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        # Its errors, of which each mask may make one (_taken), hold a backtrace where the
        # environment has RUST_BACKTRACE: 50 us, a third of the speed of a small model's answers.
        os.environ.setdefault("RUST_LIB_BACKTRACE", "0")
        from llguidance import LLTokenizer, TokenizerWrapper

        # The model's own end ids are allowed by whoever applies the mask: there may be several of
        # them, or none. llguidance wants one, so it is given an id behind all others.
        self.end_id = len(vocabulary.token_bytes)
        self.num_ids = self.end_id + 1
        self.tokenizer: LLTokenizer = LLTokenizer(
            TokenizerWrapper(_AsLlguidance(vocabulary, self.end_id)),
            n_vocab=self.num_ids,
            slices=[*LLTokenizer.general_slices(), FREE_TEXT],
        )


class _AsLlguidance:
    """The attributes that llguidance's wrapper looks for."""

    def __init__(self, vocabulary: Vocabulary, end_id: int) -> None:
        self.eos_token_id = end_id
        self.bos_token_id = None
        self.tokens = [*vocabulary.token_bytes, b"<|end of the grammar|>"]
        self.special_token_ids = [*sorted(vocabulary.special_ids), end_id]
        # The same names and signs are asked for with every token of an answer.
        self._ids_of = lru_cache(MAX_KEPT_TEXTS)(vocabulary.ids_of)

    def __call__(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise TypeError("texts only")  # how the wrapper finds out that bytes are not taken
        if len(text) > MAX_CUT_CHARS:
            return self._beginning(text)
        if len(text) > MAX_KEPT_CHARS:
            return self._ids_of.__wrapped__(text)
        return list(self._ids_of(text))

    def _beginning(self, text: str) -> list[int]:
        """The ids of a beginning of a text, as the whole text has them where nothing more than
        OVERLAP_CHARS behind an id changes it: so it is with every tokenizer that tests know, also
        of texts without a space. Where it is not, the text is written with other ids of the same
        bytes."""
        ids = self._ids_of.__wrapped__(text[:MAX_CUT_CHARS])
        certain = len(text[: MAX_CUT_CHARS - OVERLAP_CHARS].encode())
        ends = accumulate(len(self.tokens[token_id]) for token_id in ids)
        count = sum(1 for end in ends if end <= certain)
        return ids[:count] or ids  # a token may be as long as all of it


def compile_grammar(
    grammar: Grammar,
    tokenizer: GrammarTokenizer,
    limits: GrammarLimits = DEFAULT,
    param: str = "grammar",
) -> CompiledGrammar:
    """Compile a grammar for a model's tokens.

    Raises RequestError: "grammar_too_large" where it is beyond a limit, "invalid_grammar" where
    llguidance cannot read it or cannot hold an answer to it.
    """
    return CompiledGrammar(
        lambda: compiled_over(tokenizer.tokenizer, grammar, limits, param), limits.shared_fuel
    )


def compiled_over(
    tokenizer: LLTokenizer, grammar: Grammar, limits: GrammarLimits, param: str
) -> LLMatcher:
    """A grammar's matcher over any tokens, with its first mask made; raises as `compile_grammar`
    does."""
    from llguidance import LLMatcher

    limits.check(grammar, param)
    bounds = limits.of_parser(grammar)
    # Its constructor, unlike `validate_grammar`, lets other threads run.
    try:
        matcher = _with_deep_stack(
            lambda: _begun(
                LLMatcher(tokenizer, _source(grammar, param), log_level=0, limits=bounds),
                tokenizer.vocab_size,
            )
        )
    except _CompilingError as error:
        raise _refusal(str(error), param) from error
    if matcher.is_error():
        reason = error_of(matcher)
        if grammar.kind == "json_schema":
            with suppress(_CompilingError):  # of looking for the place alone
                _refuse_place(json_of(grammar, param), reason, tokenizer, bounds, param)
        elif grammar.kind == "composed":
            for body in bodies(composed_parts(grammar, param)):
                if body.kind == "json_schema":
                    compiled_over(tokenizer, body, limits, param)
        raise _refusal(reason, param)
    return matcher


def _compact() -> JsonCompileOptions:
    return cast("JsonCompileOptions", dict(COMPACT))


def _refuse_place(
    schema: Any, reason: str, tokenizer: LLTokenizer, bounds: LLParserLimits, param: str
) -> None:
    """Raises RequestError with the keyword at fault and its pointer, where these can be found."""
    from llguidance import LLMatcher

    def refusal_of(inner: dict[str, Any]) -> str:
        source = LLMatcher.grammar_from_json_schema(inner, _compact(), EXACT)
        return error_of(
            _with_deep_stack(lambda: LLMatcher(tokenizer, source, log_level=0, limits=bounds))
        )

    if not isinstance(schema, dict):
        return
    if (fault := unsatisfiable_place(schema, reason, refusal_of)) is not None:
        pointer, keyword, why = fault
        raise RequestError(
            f"{param}: no value satisfies the keyword {keyword!r} at "
            f"{pointer_text((*pointer, keyword))}: {why}",
            param=param,
            code=INVALID_GRAMMAR,
        )
    if not (keywords := keywords_of(reason)):
        return
    where = f"the keyword {' or '.join(map(repr, keywords))}, somewhere in the schema,"
    if (place := place_of(schema, reason, refusal_of)) is not None:
        pointer, keyword = place
        keywords = (keyword,)
        where = f"the keyword {keyword!r} at {pointer_text((*pointer, keyword))}"
    raise RequestError(
        f"{param}: {where} is not supported there: {_WHY[keywords[0]]}",
        param=param,
        code=UNSUPPORTED_SCHEMA,
    )


_WHY = {
    "oneOf": "a value may be valid by two of its alternatives; write anyOf, or give each a "
    "property with a const of its own",
    "maxProperties": "properties are optional beside it; omit it, or require them",
    "minProperties": "properties are optional beside it; omit it, or require them",
    "patternProperties": "a name may match two of its expressions; write them so that none does",
    "allOf": "schemas that hold together refer to each other too deep; write them as one",
    "$ref": "what it refers to has it within, with other keywords beside it; write these into a "
    "definition of their own",
}


def _begun(matcher: LLMatcher, num_ids: int) -> LLMatcher:
    """The matcher with its first mask made: what cannot be followed from the first token on is an
    error now, and no step of other requests waits for what the first mask takes."""
    if not matcher.is_error():
        words = np.zeros((num_ids + 31) // 32, np.uint32)
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
    return matcher


def _source(grammar: Grammar, param: str) -> str:
    from llguidance import LLMatcher

    if grammar.kind == "json_schema":
        schema = json_of(grammar, param)
        if schema is True:
            schema = {}
        if not isinstance(schema, dict):
            raise RequestError(
                f"{param} is {json.dumps(schema)[:40]}; a schema is an object", param=param,
                code=INVALID_GRAMMAR,
            )  # fmt: skip
        try:
            return LLMatcher.grammar_from_json_schema(schema, _compact(), EXACT)
        except ValueError as error:
            raise _refusal(str(error), param) from error
    if grammar.kind == "composed":
        return _strict(json_of(grammar, param))
    if grammar.kind == "regex":
        return LLMatcher.grammar_from_regex(grammar.text)
    if grammar.kind == "choice":
        return LLMatcher.grammar_from_regex(choice_pattern(_choices(grammar, param)))
    return LLMatcher.grammar_from_lark(UNFORCED + grammar.text)


def _strict(parts: dict[str, Any]) -> str:
    """Several grammars, with the options of every schema in each schema."""
    grammars = [
        {
            **part,
            "json_schema": {**schema, OPTIONS: {**COMPACT, **schema.get(OPTIONS, {}), **EXACT}},
        }
        if (schema := part.get("json_schema")) is not None
        else part
        for part in parts["grammars"]
    ]
    return json.dumps({"grammars": grammars})


def _choices(grammar: Grammar, param: str) -> list[str]:
    choices: Any = json_of(grammar, param)
    if not isinstance(choices, list) or not choices:
        raise RequestError(
            f"{param} has no choice; it must be a list of at least one text",
            param=param,
            code=INVALID_GRAMMAR,
        )
    for index, choice in enumerate(choices):
        if not isinstance(choice, str):
            raise RequestError(
                f"{param}[{index}] is {json.dumps(choice)[:40]}; it must be a text",
                param=f"{param}[{index}]",
                code=INVALID_GRAMMAR,
            )
    return choices


class _CompilingError(Exception):
    """The words in which llguidance gave up on a grammar, other than those of its matchers."""


def _with_deep_stack(make: Callable[[], LLMatcher]) -> LLMatcher:
    """What `make` gives, called in a thread whose stack is deep enough for a chain of as many rules
    or references as a text has room for: to overflow it would end the process."""
    made: Future[LLMatcher] = Future()

    def run() -> None:
        try:
            made.set_result(make())
        except (MemoryError, RequestError) as error:  # the one says nothing about what is made
            made.set_exception(error)
        except BaseException as error:  # a panic of Rust code is not an Exception
            made.set_exception(_CompilingError(f"{type(error).__name__}: {error}"))

    thread = threading.Thread(target=run, name="compile", daemon=True)
    with _stack_size:
        usual = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    try:
        return made.result(UNHINDERED_S)
    except TimeoutError:
        give_way(thread.native_id)
        return made.result()


def _refusal(reason: str, param: str) -> RequestError:
    """What llguidance finds wrong, in its words; it may repeat much of the grammar."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    first = lines[0] if lines else "for no stated reason"
    if first.endswith(":"):
        # An expression is repeated with a mark under its fault, and the fault itself comes last.
        fault = next((line for line in reversed(lines) if line.startswith("error: ")), "")
        first = f"{first} {fault.removeprefix('error: ')}".rstrip()
    if is_without_text(first):
        first = NO_TEXT
    if len(first) > _MAX_REASON_CHARS:
        first = f"{first[:_MAX_REASON_CHARS]}..."
    return RequestError(
        f"{param} cannot be compiled: {first}",
        param=param,
        code=GRAMMAR_TOO_LARGE if is_beyond_a_limit(reason) else INVALID_GRAMMAR,
    )
