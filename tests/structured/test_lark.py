"""What of Lark is accepted: no schema that no walk has seen, no options, no files."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.errors import RequestError
from headrace.structured.compile import compile_grammar
from headrace.structured.request import grammar_of
from headrace.structured.validity import validate
from tests.structured.test_compile import tokenizer

SCHEMA = '{"type": "array", "uniqueItems": true, "x-guidance": {"lenient": true}}'


@pytest.mark.parametrize(
    "text",
    [
        '%llguidance {}\nstart: "a"',
        "start: X\nX: /%json/ // %json {}\n%ignore / /",
        'start: "%json {" "\\"%lark" # %llguidance {"no_forcing": true}',
        "%import common.INT\nstart: INT",
    ],
)
def test_names_of_directives_in_texts_and_comments_are_text(text: str) -> None:
    grammar = grammar_of({"guided_grammar": text})
    assert grammar is not None
    validate(grammar)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"start: %json {SCHEMA}", "%json"),
        (f'start: <"> %json {SCHEMA} <">', "%json"),
        (f"start: /\n/ %json {SCHEMA}", "%json"),
        (f'start: "a//b" %json {SCHEMA}', "%json"),
        ('start: %lark { start: %json {"not": {}} }', "%lark"),
        ('%llguidance {"allow_invalid_utf8": true}\nstart: "a"', "%llguidance"),
        ('%include "/etc/passwd"\nstart: "a"', "%include"),
    ],
)
def test_a_directive_that_would_pass_no_walk_is_refused(text: str, named: str) -> None:
    with pytest.raises(RequestError) as caught:
        grammar_of({"guided_grammar": text})
    assert caught.value.code == "unsupported"
    assert named in str(caught.value)


@pytest.mark.parametrize("name", ["guided_regex", "guided_grammar", "grammar"])
def test_half_a_character_is_refused_by_name(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        grammar_of({name: 'start: "\ud800"'})
    assert caught.value.param == name


@pytest.mark.parametrize(
    "text",
    [
        'root ::= "/" r r\nr ::= "b"+',
        'root ::= "a" r\nr ::= x x\nx ::= [b]+',
        "start: X X\nX: /b+/",
        'start: "a" X X "c"\nX: /(ab)+/',
    ],
)
def test_a_text_that_would_have_to_go_on_for_ever_is_not_written_out(text: str) -> None:
    """Lexemes swallow what must follow them: every mask comes at once, and allows the next byte."""
    grammar = grammar_of({"guided_grammar": text})
    assert grammar is not None
    vocabulary = tokenizer("byte_level")
    matcher = compile_grammar(grammar, vocabulary).matcher()
    words = np.zeros(vocabulary.end_id // 32 + 1, np.uint32)
    for _ in range(40):
        matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        assert not matcher.is_error()
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()
        assert allowed
        assert matcher.consume_tokens(allowed[:1])
