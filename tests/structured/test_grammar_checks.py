"""What became of a grammar is known by its content, whatever field has it."""

from __future__ import annotations

import threading

import pytest

from headrace.errors import RequestError
from headrace.structured import grammar_checks
from headrace.structured.grammar import Grammar
from headrace.structured.grammar_checks import GrammarChecks
from headrace.structured.limits import DEFAULT
from headrace.structured.validity import validate

TOO_LARGE = Grammar("regex", "a" * (DEFAULT.text_bytes + 1))
REFUSED = [
    Grammar("regex", "("),
    Grammar("regex", "a{20000}"),
    TOO_LARGE,
    Grammar("lark", "start: a"),
    Grammar("lark", 'start: (/a/ & /b/) "c"'),
    Grammar("choice", '["a", 3]'),
    Grammar("choice", "[]"),
    Grammar("json_schema", '{"minimum": 2, "maximum": 1, "type": "integer"}'),
    Grammar("json_schema", '{"oneOf": [{"type": "string"}, {"minLength": 1}]}'),
    Grammar("json_schema", "[" * 200 + "]" * 200),
    Grammar("json_schema", "{"),
    Grammar("composed", "{}"),
    Grammar("composed", '{"grammars": [{"lark_grammar": "start: @b"}]}'),
]


@pytest.mark.parametrize(
    "grammar", REFUSED, ids=lambda grammar: f"{grammar.kind} {grammar.text:.30}"
)
def test_a_refusal_is_repeated_for_any_field_without_compiling(
    grammar: Grammar, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = GrammarChecks()
    with pytest.raises(RequestError):
        checks.check(grammar, "guided_json")
    expected = {}
    for param in ("guided_json", "tools[3].function"):
        with pytest.raises(RequestError) as compiled:
            validate(grammar, param=param)
        expected[param] = compiled.value

    def compiles(grammar: Grammar, *, param: str) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr("headrace.structured.validity.validate", compiles)
    for param, error in expected.items():
        with pytest.raises(RequestError) as refused:
            checks.check(grammar, param)
        assert str(refused.value) == str(error)
        assert (refused.value.param, refused.value.code) == (error.param, error.code)


def test_the_oldest_refusals_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_checks, "MAX_KNOWN", 2)
    compiled: list[str] = []

    def counted(grammar: Grammar, *, param: str) -> None:
        compiled.append(grammar.text)
        validate(grammar, param=param)

    monkeypatch.setattr("headrace.structured.validity.validate", counted)
    checks = GrammarChecks()
    for text in ("(", ")", "(", "*", "(", ")"):
        with pytest.raises(RequestError):
            checks.check(Grammar("regex", text), "regex")
    assert compiled == ["(", ")", "*", ")"]


def test_a_fault_that_is_not_the_grammars_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checks = GrammarChecks()
    grammar = Grammar("regex", "a")
    with monkeypatch.context() as context:

        def start(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        context.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start"):
            checks.check(grammar, "regex")
    checks.check(grammar, "regex")
    assert checks.has_text(grammar)


@pytest.mark.parametrize(
    ("grammar", "has_text"),
    [
        (Grammar("lark", "start: T\nT: /a+/ & ~/a/"), True),
        (Grammar("lark", "start: T\nT: /a+/ & /b+/"), False),
        (TOO_LARGE, True),  # not known
    ],
)
def test_a_grammar_without_a_text_is_told_from_one_that_is_too_large(
    grammar: Grammar, has_text: bool
) -> None:
    assert GrammarChecks().has_text(grammar) == has_text
