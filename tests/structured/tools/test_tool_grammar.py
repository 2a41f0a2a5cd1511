"""What a grammar of calls lets pass is read as calls that the tools' schemas accept."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

import jsonschema_rs
import numpy as np
import pytest

from headrace.answer_formats.call_syntax import HarmonyCalls, TaggedCalls
from headrace.answer_formats.deltas import CallEnd, CallStart, Delta, ParsedAnswer, joined
from headrace.answer_formats.formats import (
    CALL_FORMATS,
    AnswerFormat,
    call_format,
    reasoning_format,
)
from headrace.answer_formats.layouts.call_layout import (
    BareKeyLayout,
    NestedLayout,
    PythonLayout,
    TaggedLayout,
)
from headrace.answer_formats.layouts.known_layouts import layouts_of
from headrace.answer_formats.parser import AnswerParser
from headrace.embedded import embedded_model
from headrace.engine.grammars.vocabulary import vocabulary_maker
from headrace.errors import RequestError
from headrace.structured.compile import compile_grammar, validate
from headrace.structured.grammar import Grammar
from headrace.structured.tools.call_grammar import CallableTool, tool_call_grammar
from headrace.weights.open import open_checkpoint
from tests.answer_formats.cuts import merged
from tests.structured.matching import Language
from tests.structured.walking import Walker, special_of, walker_over_bytes
from tools.structured.language import byte_tokenizer

MARKS = (
    "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>", "[TOOL_CALLS]", "[ARGS]",
    "[CALL_ID]", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
    "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
    "<|START_ACTION|>", "<|END_ACTION|>", "<|tool_call|>", "<|/tool_call|>",
    "<|tool_call_start|>", "<|tool_call_end|>", "<|python_start|>", "<|python_end|>",
    "<|python_tag|>", "<|eot|>", "<|action_start|>", "<|plugin|>", "<|action_end|>",
    "<|function_call|>", "<|tools_prefix|>", "<|tools_suffix|>", "<|open|>", "<|close|>", "<|sep|>",
    "｜DSML｜", "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", "<｜tool_call_begin｜>",
    "<｜tool_call_end｜>", "<｜tool_sep｜>", "<|content_invoke_tool_json|>", "<|end_message|>",
    "<|message_model|>", "<|content_text|>", "<|content_thinking|>", "<|tool_call>",
    "<tool_call|>", '<|"|>', "<start_function_call>", "<end_function_call>", "<escape>",
    "]<]minimax[>[",
)  # fmt: skip
CLOSERS = (
    '"', "}", "]", '"}', "</think>", "</parameter>", "</arg_value>", "\n</parameter>", "<|end|>",
    "<tool_call>", ")", "'", "1", "true",
)  # fmt: skip

NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "options": {
            "type": "object",
            "properties": {
                "deep": {"type": "boolean"},
                "scale": {"type": "number", "minimum": 0, "maximum": 10},
            },
            "required": ["deep"],
            "additionalProperties": False,
        },
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "until": {"type": ["string", "null"]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
UNICODE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "größe": {"type": "number", "minimum": -99.5, "maximum": 100},
        "名前": {"type": "string"},
    },
    "required": ["größe"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": NESTED,
    "get": UNICODE,
    "refresh": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS = [
    CallableTool(name=name, parameters=schema, param=f"tools[{index}].function")
    for index, (name, schema) in enumerate(SCHEMAS.items())
]
NAMES = [known.name for known in CALL_FORMATS]
# Each format meets its marks as text and as control tokens, and both values of another choice;
# which values meet alternates from one format to the next.
CELLS = [
    pytest.param(name, marks, bool((at + bool(marks)) % 2), id=f"{name}-{kind}")
    for at, name in enumerate(NAMES)
    for marks, kind in (((), "text"), (MARKS, "control tokens"))
]


def closers_of(name: str, special: Mapping[str, int]) -> tuple[str, ...]:
    """Texts that end what is free in calls of a format."""
    layouts = layouts_of(call_format(name), special)
    ends = [each.value_end for each in layouts if isinstance(each, TaggedLayout)]
    ends += [each.quote for each in layouts if isinstance(each, BareKeyLayout)]
    ends += [f"{each.prefix}<" for each in layouts if isinstance(each, NestedLayout)]
    return (*CLOSERS, *dict.fromkeys(ends))


def answer_format(name: str) -> AnswerFormat:
    calls = call_format(name)
    if calls.opened_by:  # the prompt has it where reasoning would begin
        return AnswerFormat(calls)
    harmony = isinstance(calls.syntax, HarmonyCalls)
    return AnswerFormat(calls, reasoning_format("harmony" if harmony else "think"))


@cache
def grammar(
    name: str,
    choice: Literal["required", "auto"] = "required",
    parallel: bool = True,
    opened: bool = False,
    marks: tuple[str, ...] = (),
    named: str = "",
) -> Grammar:
    return tool_call_grammar(
        answer_format(name),
        [tool for tool in TOOLS if named in ("", tool.name)],
        choice=choice,
        parallel=parallel,
        opened=opened,
        special=special_of(walker_over_bytes(marks)),
    )


def parsed(name: str, text: str, opened: bool = False) -> ParsedAnswer:
    """The answer, after a check that it is the same at once and character by character."""

    def run(pieces: Sequence[str]) -> list[Delta]:
        parser = AnswerParser(answer_format(name), tools=SCHEMAS, reasoning_opened=opened)
        return merged([d for piece in pieces for d in parser.feed(piece)] + parser.finish())

    whole = run([text])
    assert run(list(text)) == whole
    starts = [delta.index for delta in whole if isinstance(delta, CallStart)]
    assert starts == [delta.index for delta in whole if isinstance(delta, CallEnd)]
    return joined(whole)


def check_calls(answer: ParsedAnswer, text: str) -> None:
    for call in answer.calls:
        assert call.fault == "", text
        errors = jsonschema_rs.validator_for(SCHEMAS[call.name]).iter_errors(
            json.loads(call.arguments)
        )
        assert not list(errors), text


@pytest.mark.matrix
@pytest.mark.parametrize(("name", "marks", "opened"), CELLS)
def test_a_required_answer_is_calls_that_their_schemas_accept(
    name: str, marks: tuple[str, ...], opened: bool
) -> None:
    if name == "harmony":
        opened, marks = False, MARKS  # text that spells its marks would be read as them
    closers = closers_of(name, special_of(walker_over_bytes(marks)))
    several, called = False, set()
    for seed in range(12):
        text = walker_over_bytes(marks).walk(
            grammar(name, opened=opened, marks=marks), seed, closers
        )
        answer = parsed(name, text, opened)
        assert answer.calls, text
        if name != "harmony":
            assert answer.content == "", text
        check_calls(answer, text)
        several |= len(answer.calls) > 1
        called |= {call.name for call in answer.calls}
    assert several == (name != "harmony")
    assert len(called) > 1


@pytest.mark.parametrize("name", NAMES)
def test_one_call_of_the_named_tool_alone(name: str) -> None:
    for seed in range(4):
        held = grammar(name, parallel=False, named="get", marks=MARKS)
        text = walker_over_bytes(MARKS).walk(held, seed, closers_of(name, {}))
        answer = parsed(name, text)
        assert [call.name for call in answer.calls] == ["get"]
        check_calls(answer, text)


REFUSED_WITHIN_TEXT = {
    ("functionary_v3_2", ()): "functionary_v3_2",
    ("functionary_v3_2", MARKS): "functionary_v3_2",
    ("gigachat3", ()): "first character",
    ("minimax_m3", ()): "first character",
}


@pytest.mark.matrix
@pytest.mark.parametrize(("name", "marks", "parallel"), CELLS)
def test_calls_within_text_are_calls_that_their_schemas_accept(
    name: str, marks: tuple[str, ...], parallel: bool
) -> None:
    if (name, marks) in REFUSED_WITHIN_TEXT:
        with pytest.raises(RequestError, match=REFUSED_WITHIN_TEXT[name, marks]) as caught:
            grammar(name, choice="auto", parallel=parallel, marks=marks)
        assert caught.value.code == "unsupported_tool"
        return
    if name == "harmony":
        marks = MARKS
    called = wordy = 0
    syntax = call_format(name).syntax
    begins: tuple[str, ...] = ()
    if not isinstance(syntax, HarmonyCalls):
        begins = syntax[0].begins
        if isinstance(syntax[0], TaggedCalls):
            begins += syntax[0].bare
    for seed in range(16):
        held = grammar(name, choice="auto", parallel=parallel, opened=True, marks=marks)
        closers = (*closers_of(name, {}), *begins, '{"name": "', "[get(")
        text = walker_over_bytes(marks).walk(held, seed, closers, end=0.05)
        answer = parsed(name, text, opened=True)
        check_calls(answer, text)
        called += bool(answer.calls)
        wordy += bool(answer.content)
        assert parallel or len(answer.calls) < 2, text
    assert called and wordy


def test_text_has_no_mark_of_a_call_that_is_held_to_nothing() -> None:
    """What `AnswerParser` takes for a call's beginning is one that the grammar goes on from."""
    found = {}
    for name in sorted(each.name for each in CALL_FORMATS):
        syntaxes = call_format(name).syntax
        if isinstance(syntaxes, HarmonyCalls) or (name, ()) in REFUSED_WITHIN_TEXT:
            continue
        layouts = layouts_of(call_format(name), {})
        texts = [
            "".join(piece for piece in (*layout.opening, *getattr(layout, "before_name", ()))
                    if isinstance(piece, str))
            for layout in layouts
        ]  # fmt: skip
        held = compile_grammar(grammar(name, choice="auto", opened=True), byte_tokenizer())
        for syntax in syntaxes:
            bare = syntax.bare if isinstance(syntax, TaggedCalls) else ()
            for mark in (*syntax.begins, *bare):
                if any(text.lstrip().startswith(mark.strip()) for text in texts):
                    continue
                ids = list(f"x</think> so {mark}".encode())
                found[name, mark] = held.matcher().validate_tokens(ids) == len(ids)
    assert ("qwen3_coder", "<function=") in found and len(found) > 8
    assert not any(found.values()), [key for key, passes in found.items() if passes]


@pytest.mark.parametrize("choice", ["required", "auto"])
@pytest.mark.parametrize("marks", [(), MARKS], ids=["text", "control tokens"])
@pytest.mark.parametrize(
    "name", ["kimi_k2", "deepseek", "dsml", "minimax_m2", "qwen3_coder", "glm"]
)
def test_calls_may_end_reasoning_by_their_own_mark(
    name: str, marks: tuple[str, ...], choice: Literal["required", "auto"]
) -> None:
    walker = walker_over_bytes(marks)
    for parallel in (False, True):
        held = grammar(name, choice, parallel, opened=True, marks=marks)
        matcher = compile_grammar(held, walker.tokenizer).matcher()
        layout = layouts_of(call_format(name), {})[0]
        assert not isinstance(layout, PythonLayout)
        (begin, *_) = layout.opening or layout.before_name
        assert isinstance(begin, str)
        ids = walker.ids_of(f"Hm, <b> {begin.strip()}")
        assert matcher.validate_tokens(ids) == len(ids)
        text = walker.walk(held, 0, closers_of(name, {}), after=f"Hm.{begin}")
        answer = parsed(name, text, opened=True)
        assert answer.reasoning == "Hm."
        assert answer.calls
        check_calls(answer, text)


@pytest.mark.parametrize("name", NAMES)
def test_equal_tools_give_an_equal_grammar(name: str) -> None:
    assert grammar(name) == grammar.__wrapped__(name)


def held(name: str, schema: dict[str, Any], **options: Any) -> Grammar:
    tool = CallableTool(name="f", parameters=schema, param="tools[2].function", **options)
    return tool_call_grammar(
        AnswerFormat(call_format(name)), [tool], choice="required", parallel=False, opened=False,
        special={},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "pythonic", "harmony"])
def test_what_no_grammar_enforces_of_a_tool_is_refused_with_its_place(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        held(name, {"properties": {"a": {"type": "array", "uniqueItems": True}}})
    assert caught.value.param == "tools[2].function.parameters"
    assert caught.value.code == "unsupported_schema"
    assert "#/properties/a/uniqueItems" in str(caught.value)
    validate(held(name, {"properties": {"a": {"uniqueItems": True}}}, strict=False))


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("qwen3_coder", {"properties": {"a>b": {}}}),
        ("qwen3_coder", {"anyOf": [{}]}),
        ("qwen3_coder", {"properties": {"a": {"type": "string", "pattern": "(^a|b)c"}}}),
        ("qwen3_coder", {"properties": {"a": {"const": "x</parameter>"}}}),
        ("pythonic", {"properties": {"a b": {}}}),
        ("pythonic", {"required": ["a"], "properties": {"a": False}}),
    ],
)
def test_what_a_format_cannot_write_is_refused(name: str, schema: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        held(name, schema)
    assert caught.value.param == "tools[2].function.parameters"
    assert caught.value.code == "unsupported_schema"


def test_arguments_that_could_be_no_object_are_refused_or_held_to_one() -> None:
    for kinds in ("string", ["null", "array"]):
        with pytest.raises(RequestError, match="the keyword 'type' at #/type") as caught:
            held("hermes", {"type": kinds})
        assert caught.value.code == "unsupported_schema"
    with pytest.raises(RequestError, match="no value satisfies the keyword"):
        validate(held("hermes", {"const": 1}))
    language = Language(held("hermes", {"type": ["object", "null"]}))
    head = '<tool_call>\n{"name": "f", "arguments": '
    assert language.has(head + "{}}\n</tool_call>")
    assert not language.has(head + "null}\n</tool_call>")


@pytest.mark.parametrize("bad", ["", "a b", "1a", "a" * 300, "ä", "a<b"])
def test_a_name_that_cannot_be_written_is_refused(bad: str) -> None:
    with pytest.raises(RequestError, match=r"tools\[0\]\.function\.name") as caught:
        tool_call_grammar(
            answer_format("hermes"), [CallableTool(name=bad, param="tools[0].function")],
            choice="required", parallel=False, opened=False, special={},
        )  # fmt: skip
    assert caught.value.param == "tools[0].function.name"


COLOUR = {"type": "string", "enum": ["red", "null", "3"]}
TEXTS: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "string": ({"type": "string"}, ["", "a <b>\n", '"', "3"], []),
    "short": ({"type": "string", "maxLength": 3, "minLength": 1}, ["ab", "</p"], ["abcd", ""]),
    "pattern": ({"type": "string", "pattern": "^a/[0-9]+$|x"}, ["a/12", "oxo"], ["a/", "ba/1"]),
    "hostname": ({"type": "string", "format": "hostname"}, ["a.b-c"], ["-a", "a..b"]),
    "date": ({"type": "string", "format": "date"}, ["2024-02-29"], ["2023-02-29", "x"]),
    "enum": (COLOUR, ["red", "null", "3"], ["blue"]),
    "optional": ({"anyOf": [{"type": "string"}, {"type": "null"}]}, ["a", "null", "None"], []),
    "number or text": ({"anyOf": [{"type": "integer", "minimum": 5}, {"type": "string"}]},
                       ["7", "text", ""], ["3", "-1"]),
    "mixed": ({"enum": [1, "1", "b", None]}, ["1", "b", "null"], ["2", "c"]),
    "referred": ({"$ref": "#/$defs/colour"}, ["red"], ["null", "3", "blue"]),
    "anything": ({}, ["a", "3", '{"a": 1}', "true"], []),
    "list": ({"type": "array", "items": {"type": "string"}}, ["[]", '["</parameter>"]'], ["a"]),
    "flag": ({"type": "boolean"}, ["true", "false"], ["True", "yes"]),
    "number": ({"type": "number"}, ["1.5", "-3"], ["1e5", "x"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS)
def test_values_between_tags_are_those_of_their_schema_as_the_parser_reads_them(kind: str) -> None:
    inner, valid, invalid = TEXTS[kind]
    schema = {
        "type": "object",
        "$defs": {"colour": COLOUR},
        "properties": {"a": inner},
        "required": ["a"],
    }
    language = Language(held("qwen3_coder", schema))
    assert language.error == ""
    format = AnswerFormat(call_format("qwen3_coder"))
    for value in (*valid, *invalid):
        text = (
            f"<tool_call>\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>\n"
            "</tool_call>"
        )
        assert language.has(text) == (value in valid), value
        if value not in valid:
            continue
        parser = AnswerParser(format, tools={"f": schema})
        (call,) = joined([*parser.feed(text), *parser.finish()]).calls
        assert call.fault == ""
        assert jsonschema_rs.is_valid(schema, json.loads(call.arguments)), call.arguments


def test_arguments_in_python_have_its_words() -> None:
    schema = {
        "properties": {
            "flags": {"type": "array", "items": {"type": "boolean"}},
            "note": {"type": ["string", "null"]},
            "mode": {"enum": ["fast", True, None, {"a": False}]},
        }
    }
    language = Language(held("pythonic", schema))
    for arguments in ("", "flags=[True, False]", "note=None", 'note="x", mode={"a": False}',
                      "flags=[], mode=None", 'mode="fast"'):  # fmt: skip
        assert language.has(f"[f({arguments})]"), arguments
    for arguments in ("flags=[true]", "note=null", "mode=false", "note=None flags=[]", ", "):
        assert not language.has(f"[f({arguments})]"), arguments


HOSTILE_SCHEMAS = {
    "2^31 repeats": {"properties": {"a": {"type": "string", "pattern": "a{2147483647}"}}},
    "nested repeats": {
        "properties": {"a": {"type": "string", "pattern": "((a{1,99}){1,99}){9,99}"}}
    },
    "catastrophic": {"properties": {"a": {"type": "string", "pattern": "^(a+)+(a|aa)*b{500}$"}}},
    "2^31 characters": {"properties": {"a": {"type": "string", "minLength": 2**31}}},
    "large enum": {"properties": {"a": {"enum": [f"value {i}" for i in range(50_000)]}}},
    "large const": {"properties": {"a": {"const": "x" * 1_000_000}}},
    "self reference": {"properties": {"a": {"$ref": "#/properties/a"}}},
    "references in a ring": {"properties": {"a": {"$ref": "#/$defs/b"}},
                             "$defs": {"b": {"$ref": "#/$defs/c"}, "c": {"$ref": "#/$defs/b"}}},
    "many properties": {"properties": {f"p{i}": {"type": "string"} for i in range(20_000)}},
    "deep": json.loads('{"properties": {"a": ' * 60 + "{}" + "}}" * 60),
    "deeper": json.loads('{"properties": {"a": ' * 300 + "{}" + "}}" * 300),
    "unions of unions": {
        "properties": {"a": json.loads('{"anyOf": [' * 20 + "{}, {}" + "]}" * 20)}
    },
    "doubling references": {
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}
        | {"d40": {"type": "string"}},
    },
    "fewer doubling references": {
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(25)}
        | {"d25": {"type": "string"}},
    },
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "pythonic", "gemma4", "minimax_m3"])
@pytest.mark.parametrize("hostile", HOSTILE_SCHEMAS)
def test_a_hostile_tool_is_refused_or_compiles_in_bounded_time(name: str, hostile: str) -> None:
    begun_s = time.process_time()
    try:
        grammar = held(name, HOSTILE_SCHEMAS[hostile])
        compiled = compile_grammar(grammar, walker_over_bytes().tokenizer)
        words = np.zeros(9, np.uint32)
        compiled.matcher().unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
    except RequestError as error:
        assert error.code in (
            "invalid_grammar", "grammar_too_large", "unsupported_schema", "schema_too_large",
            "invalid_schema",
        )  # fmt: skip
        assert len(str(error)) < 1000
    assert time.process_time() - begun_s < 3


@pytest.mark.long
def test_the_embedded_model_writes_calls_with_its_own_tokens() -> None:
    tokenizer = open_checkpoint(embedded_model()).tokenizer
    num_tokens = tokenizer.num_tokens
    assert num_tokens is not None
    make = vocabulary_maker(tokenizer, num_tokens)
    assert make is not None
    walker = Walker(make())
    for seed in range(3):
        text = walker.walk(grammar("hermes", opened=True), seed, CLOSERS)
        check_calls(parsed("hermes", text, opened=True), text)
    matcher = compile_grammar(grammar("hermes", opened=True), walker.tokenizer).matcher()
    begun = walker.vocabulary.ids_of("Hm.</think>\n\n<tool_call>")
    assert matcher.consume_tokens(begun)
    forced = matcher.compute_ff_tokens()
    expected = walker.vocabulary.ids_of('\n{"name": "')
    assert forced[: len(expected) - 1] == expected[: len(forced)][: len(expected) - 1]
    assert len(forced) > 2
