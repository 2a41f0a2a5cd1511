"""Fields that hold an answer to a form: the grammar that the engine gets, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace.structured.grammar import Grammar
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says

Start = Callable[..., Running]

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
PATHS = ("/v1/chat/completions", "/v1/completions")


def posted(server: Running, path: str, **fields: Any) -> Any:
    body = {"messages": [{"role": "user", "content": "x"}]} if "chat" in path else {"prompt": "x"}
    return server.post(path, {**body, **fields})


def grammar_for(server: Running, path: str, **fields: Any) -> Grammar | None:
    reply = posted(server, path, **fields)
    assert reply.status_code == 200, reply.text
    return server.engine.submitted[-1].params.grammar


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"response_format": {"type": "json_object"}}, "json_schema"),
        ({"response_format": FORMAT}, "json_schema"),
        ({"structured_outputs": {"json": SCHEMA}}, "json_schema"),
        ({"structured_outputs": {"choice": ["a", "b"]}}, "choice"),
        ({"guided_json": SCHEMA}, "json_schema"),
        ({"guided_json": msgspec.json.encode(SCHEMA).decode()}, "json_schema"),
        ({"guided_json": SCHEMA, "guided_whitespace_pattern": " ?"}, "json_schema"),
        ({"guided_regex": "[0-9]{3}"}, "regex"),
        ({"guided_choice": ["yes", "no"]}, "choice"),
        ({"guided_grammar": 'root ::= "a" | "b"'}, "lark"),
        ({"grammar": 'root ::= "a"'}, "lark"),
        ({"json_schema": SCHEMA}, "json_schema"),
        ({"regex": "[0-9]{3}"}, "regex"),
        ({"ebnf": 'root ::= "a" | "b"'}, "lark"),
    ],
)  # fmt: skip
def test_the_engine_gets_the_grammar(
    start: Start, path: str, fields: dict[str, Any], kind: str
) -> None:
    grammar = grammar_for(start(MockEngine(says("x"))), path, **fields)
    assert grammar is not None
    assert grammar.kind == kind


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "fields", [{}, {"response_format": {"type": "text"}}, {"grammar": ""}, {"guided_json": None}]
)
def test_free_text_has_none(start: Start, path: str, fields: dict[str, Any]) -> None:
    assert grammar_for(start(MockEngine(says("x"))), path, **fields) is None


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        (
            {"guided_json": {"type": "array", "items": {"not": {}}}},
            "guided_json",
            "'not' at #/items/not",
        ),
        (
            {
                "guided_json": {
                    "type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"],
                },
                "stream": True,
            },
            "guided_json",
            "no value satisfies the keyword '$ref' at #/properties/a/$ref",
        ),
        (
            {"guided_json": {"type": "array", "maxItems": -1}},
            "guided_json",
            "'maxItems' is -1; it must be a whole number, 0 or more, at #/maxItems",
        ),
        ({"guided_regex": "(a"}, "guided_regex", "unclosed group"),
        ({"guided_grammar": "start: nothing"}, "guided_grammar", "nothing"),
        ({"guided_choice": []}, "guided_choice", "at least one"),
        ({"guided_whitespace_pattern": " ?"}, "guided_whitespace_pattern", "guided_json"),
        ({"ebnf": 'root ::= "a'}, "ebnf", "GBNF"),
        ({"guided_choice": ["a"], "guided_regex": "a"}, "guided_choice", "one grammar"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "json_schema"),
        ({"structured_outputs": {"json": SCHEMA, "regex": "a"}}, "structured_outputs", "one"),
    ],
)  # fmt: skip
def test_what_cannot_be_held_is_refused_by_name(
    start: Start, path: str, fields: dict[str, Any], param: str, words: str
) -> None:
    engine = MockEngine(says("x"))
    reply = posted(start(engine), path, **fields)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["param"] == param
    assert words in error["message"]
    assert not engine.submitted


def test_every_choice_has_it(start: Start) -> None:
    engine = MockEngine(says("x"))
    start(engine).chat(n=3, guided_regex="x+")
    assert {submit.params.grammar for submit in engine.submitted} == {Grammar("regex", "x+")}
