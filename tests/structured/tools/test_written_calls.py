"""Calls that are neither JSON nor tags around texts: arguments of random schemas, as models write
them, are texts of the grammar and are read as themselves; what the grammar lets pass is valid."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import pytest

from headrace.answer_formats.deltas import ParsedAnswer, joined
from headrace.answer_formats.formats import AnswerFormat, call_format
from headrace.answer_formats.layouts.known_layouts import layouts_of
from headrace.answer_formats.parser import AnswerParser
from headrace.answer_formats.readers.tagged_calls import declared_types
from headrace.errors import RequestError
from headrace.structured.tools.call_grammar import CallableTool, tool_call_grammar
from tests.structured.matching import Language
from tests.structured.walking import special_of, walker_over_bytes

MARKS = ("<|tool_call>", "<tool_call|>", '<|"|>', "<start_function_call>", "<end_function_call>",
         "<escape>", "]<]minimax[>[")  # fmt: skip
NAMES = ("gemma4", "functiongemma", "minimax_m3")
M3 = "]<]minimax[>["
WORDS = ("Zürich", "a <b> c", 'say "hi"', "{x}, [y]", "line\nline", "]<]", "it's: 3", "ü" * 9)


def schema_of(draw: random.Random, depth: int = 0) -> dict[str, Any]:
    """A schema with values."""
    kind = draw.choice(["string", "integer", "number", "boolean", "null", "enum", "union", "text"]
                       + ["array", "object", "object"] * (depth < 3))  # fmt: skip
    match kind:
        case "text":
            return {"type": "string", "minLength": 1, "maxLength": 40}
        case "integer":
            return {"type": "integer", "minimum": -5, "maximum": 99}
        case "enum":
            return {"enum": draw.sample(["red", "blue", 3, 2.5, True, None, [1, 2]], 3)}
        case "union":
            other = draw.choice(["integer", "null", "boolean", "array"])
            return draw.choice(
                [{"type": ["string", other]}, {"anyOf": [{"type": other}, {"type": "string"}]}]
            )
        case "array":
            bounds = draw.choice([{}, {"minItems": 1}, {"minItems": 2, "maxItems": 3}])
            return {"type": "array", "items": schema_of(draw, depth + 1), **bounds}
        case "object":
            names = draw.sample(
                ["city", "days", "größe", "items", "a b", "$key"], draw.randint(1, 4)
            )
            return {
                "type": "object",
                "properties": {name: schema_of(draw, depth + 1) for name in names},
                "required": [name for name in names if draw.random() < 0.5],
                "additionalProperties": False,
            }
    return {"type": kind}


def value_of(schema: Mapping[str, Any], draw: random.Random) -> Any:
    """A value of such a schema."""
    if "enum" in schema:
        return draw.choice(schema["enum"])
    if "anyOf" in schema:
        return value_of(draw.choice(schema["anyOf"]), draw)
    kind = schema["type"]
    match draw.choice(kind) if isinstance(kind, list) else kind:
        case "string":
            return draw.choice(WORDS[:3] if isinstance(kind, list) else WORDS)
        case "integer":
            return draw.randint(-5, 99)
        case "number":
            return draw.choice([0, -1.5, 1e6, 12])
        case "boolean":
            return draw.random() < 0.5
        case "null":
            return None
        case "array":
            count = draw.randint(schema.get("minItems", 0), schema.get("maxItems", 3))
            return [value_of(schema.get("items", {"type": "integer"}), draw) for _ in range(count)]
    return {
        name: value_of(inner, draw)
        for name, inner in schema["properties"].items()
        if name in schema["required"] or draw.random() < 0.5
    }


def bare(value: Any, quote: str) -> str:
    """As Gemma's templates write it."""
    match value:
        case str():
            return f"{quote}{value}{quote}"
        case dict():
            return "{" + ",".join(f"{key}:{bare(each, quote)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ",".join(bare(each, quote) for each in value) + "]"
    return json.dumps(value)


def nested(value: Any, schema: Mapping[str, Any]) -> str:
    """As MiniMax-M3's template writes it; an empty list in a union is JSON, which tells it from
    an empty text."""
    types = declared_types(schema)
    if isinstance(value, dict) and (value or "string" not in types):
        return elements(value, schema["properties"])
    if isinstance(value, list) and "enum" not in schema and (value or "string" not in types):
        items = schema.get("items", {"type": "integer"})
        return "".join(f"{M3}<item>{nested(each, items)}{M3}</item>" for each in value)
    return value if isinstance(value, str) else json.dumps(value)


def elements(value: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    return "".join(
        f"{M3}<{name}>{nested(each, schemas[name])}{M3}</{name}>" for name, each in value.items()
    )


def written(name: str, arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if name == "gemma4":
        return f"<|tool_call>call:f{bare(arguments, MARKS[2])}<tool_call|>"
    if name == "functiongemma":
        return f"<start_function_call>call:f{bare(arguments, '<escape>')}<end_function_call>"
    inner = elements(arguments, schema["properties"])
    return f'{M3}<tool_call>\n{M3}<invoke name="f">{inner}{M3}</invoke>\n{M3}</tool_call>'


def object_schema(seed: int) -> dict[str, Any]:
    draw = random.Random(seed)
    names = [f"p{number}" for number in range(draw.randint(1, 4))]
    return {
        "type": "object",
        "properties": {name: schema_of(draw) for name in names},
        "required": [name for name in names if draw.random() < 0.5],
    }


def grammar_of(name: str, schema: Mapping[str, Any], marks: tuple[str, ...] = ()) -> Any:
    return tool_call_grammar(
        AnswerFormat(call_format(name)),
        [CallableTool(name="f", parameters=schema)],
        choice="required",
        parallel=False,
        opened=False,
        special=special_of(walker_over_bytes(marks)),
    )


def read(name: str, text: str, schema: Mapping[str, Any]) -> ParsedAnswer:
    parser = AnswerParser(AnswerFormat(call_format(name)), tools={"f": schema})
    return joined([*parser.feed(text), *parser.finish()])


@pytest.mark.matrix
@pytest.mark.parametrize("name", NAMES)
def test_random_arguments_are_texts_of_the_grammar_and_are_read_as_they_are(name: str) -> None:
    for seed in range(60):
        schema = object_schema(seed)
        language, draw = Language(grammar_of(name, schema)), random.Random(seed)
        for _ in range(4):
            arguments = value_of({**schema, "required": schema["required"]}, draw)
            text = written(name, arguments, schema)
            assert language.has(text), (schema, text)
            (call,) = read(name, text, schema).calls
            assert call.fault == "" and json.loads(call.arguments) == arguments, (schema, text)


@pytest.mark.matrix
@pytest.mark.parametrize("marks", [(), MARKS], ids=["text", "control tokens"])
@pytest.mark.parametrize("name", NAMES)
def test_random_texts_of_the_grammar_are_calls_of_their_schema(
    name: str, marks: tuple[str, ...]
) -> None:
    walker = walker_over_bytes(marks)
    closers = ('<|"|>', "<escape>", f"{M3}<", "}", "]", ",", "1", "true")
    for seed in range(40):
        schema = object_schema(seed)
        text = walker.walk(grammar_of(name, schema, marks), seed, closers)
        answer = read(name, text, schema)
        assert answer.content == "", text
        (call,) = answer.calls
        assert call.fault == "", text
        assert jsonschema_rs.is_valid(schema, json.loads(call.arguments)), (schema, text)


ANY: dict[str, Any] = {
    "properties": {"any": {}, "map": {"type": "object", "additionalProperties": {"type": "string"}},
                   "more": {"type": "object"}, "list": {"type": "array"}},
}  # fmt: skip


@pytest.mark.matrix
@pytest.mark.parametrize("name", NAMES)
def test_values_of_any_kind_and_maps_are_held_too(name: str) -> None:
    walker = walker_over_bytes(())
    closers = ('<|"|>', "<escape>", f"{M3}<", '"', '"}', "}", "]", "1")
    for strict in (True, False):
        tool = CallableTool(name="f", parameters=ANY, strict=strict)
        grammar = tool_call_grammar(
            AnswerFormat(call_format(name)), [tool], choice="required", parallel=False,
            opened=False, special={},
        )  # fmt: skip
        for seed in range(25):
            text = walker.walk(grammar, seed, closers)
            (call,) = read(name, text, ANY).calls
            assert call.fault == "", text
            assert not strict or jsonschema_rs.is_valid(ANY, json.loads(call.arguments)), text


def test_a_schema_that_refers_to_itself_ends() -> None:
    tree: dict[str, Any] = {
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "required": ["tree"],
        "$defs": {"node": {"type": "object", "additionalProperties": False, "required": ["name"],
                           "properties": {"name": {"type": "string"},
                                          "children": {"type": "array",
                                                       "items": {"$ref": "#/$defs/node"}}}}},
    }  # fmt: skip
    leaf = {"name": "a"}
    value = {"tree": {"name": "b", "children": [leaf, {"name": "c", "children": [leaf]}]}}
    language = Language(grammar_of("gemma4", tree))
    text = written("gemma4", value, tree)
    assert language.has(text)
    (call,) = read("gemma4", text, tree).calls
    assert json.loads(call.arguments) == value
    assert not language.has(text.replace("name", "nome"))
    Language(grammar_of("minimax_m3", tree))


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("gemma4", {"properties": {"a:b": {}}}),
        ("gemma4", {"properties": {"a": {"type": "object", "patternProperties": {"x": {}}}}}),
        ("gemma4", {"required": ["a"], "properties": {"a": {"const": '<|"|>'}}}),
        (
            "functiongemma",
            {"required": ["a"], "properties": {"a": {"type": "string", "enum": ["<escape>"]}}},
        ),
        ("minimax_m3", {"properties": {"a>b": {}}}),
        ("minimax_m3", {"properties": {"/a": {}}}),
    ],
)
def test_what_these_forms_cannot_write_is_refused(name: str, schema: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        grammar_of(name, schema)
    assert caught.value.param == "tools.parameters"
    assert caught.value.code == "unsupported_schema"


def test_strings_that_would_be_read_as_numbers_are_not_written() -> None:
    schema = {
        "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "integer", "maximum": 9}]}}
    }
    language = Language(grammar_of("functiongemma", schema))
    head, tail = "<start_function_call>call:f{a:", "}<end_function_call>"
    for text, held in (("7", True), ("12", False), ("<escape>12<escape>", False),
                       ("<escape>twelve<escape>", True)):  # fmt: skip
        assert language.has(head + text + tail) == held, text
    gemma = Language(grammar_of("gemma4", schema))
    assert gemma.has('<|tool_call>call:f{a:<|"|>12<|"|>}<tool_call|>')


def test_every_known_format_has_a_layout() -> None:
    for name in NAMES:
        assert layouts_of(call_format(name), {})
