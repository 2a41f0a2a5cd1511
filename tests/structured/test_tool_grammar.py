"""What a grammar of calls lets pass is read as calls that the tools' schemas accept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

import jsonschema_rs
import pytest

from headrace.answer_formats.call_syntax import HarmonyCalls
from headrace.answer_formats.deltas import CallEnd, CallStart, Delta, ParsedAnswer, joined
from headrace.answer_formats.formats import (
    CALL_FORMATS,
    AnswerFormat,
    call_format,
    reasoning_format,
)
from headrace.answer_formats.parser import AnswerParser
from headrace.structured.grammar import Grammar
from headrace.structured.tool_grammar import CallableTool, tool_call_grammar
from tests.answer_formats.cuts import merged
from tests.structured.walking import special_of, walker_over_bytes

MARKS = (
    "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>", "[TOOL_CALLS]", "[ARGS]",
    "[CALL_ID]", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>",
    "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>", "<｜tool▁sep｜>",
    "<|START_ACTION|>", "<|END_ACTION|>", "<|tool_call|>", "<|/tool_call|>",
    "<|tool_call_start|>", "<|tool_call_end|>", "<|python_start|>", "<|python_end|>",
    "<|python_tag|>", "<|eot|>",
)  # fmt: skip
CLOSERS = (
    '"', "}", "]", '"}', "</think>", "</parameter>", "</arg_value>", "\n</parameter>", "<|end|>",
    "<tool_call>", ")", "'", "1", "true",
)  # fmt: skip

NESTED = {
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
UNICODE = {
    "type": "object",
    "properties": {
        "größe": {"type": "number", "minimum": -99.5, "maximum": 100},
        "名前": {"type": "string"},
    },
    "required": ["größe"],
    "additionalProperties": False,
}
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "get_weather": NESTED,
    "get": UNICODE,
    "refresh": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS = [
    CallableTool(name=name, parameters=schema, param=f"tools[{index}].function")
    for index, (name, schema) in enumerate(SCHEMAS.items())
]
NAMES = [known.name for known in CALL_FORMATS]


def answer_format(name: str) -> AnswerFormat:
    calls = call_format(name)
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


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("marks", [(), MARKS], ids=["text", "control tokens"])
@pytest.mark.parametrize("name", NAMES)
def test_a_required_answer_is_calls_that_their_schemas_accept(
    name: str, marks: tuple[str, ...], opened: bool
) -> None:
    if name == "harmony":
        opened, marks = False, MARKS  # text that spells its marks would be read as them
    several, called = False, set()
    for seed in range(12):
        text = walker_over_bytes(marks).walk(
            grammar(name, opened=opened, marks=marks), seed, CLOSERS
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
        text = walker_over_bytes(MARKS).walk(held, seed, CLOSERS)
        answer = parsed(name, text)
        assert [call.name for call in answer.calls] == ["get"]
        check_calls(answer, text)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_calls_within_text_are_calls_that_their_schemas_accept(name: str, parallel: bool) -> None:
    called = wordy = 0
    syntax = call_format(name).syntax
    begins = () if isinstance(syntax, HarmonyCalls) else syntax[0].begins
    for seed in range(16):
        held = grammar(name, choice="auto", parallel=parallel, opened=True, marks=MARKS)
        closers = (*CLOSERS, *begins, '{"name": "', "[get(")
        text = walker_over_bytes(MARKS).walk(held, seed, closers, end=0.05)
        answer = parsed(name, text, opened=True)
        check_calls(answer, text)
        called += bool(answer.calls)
        wordy += bool(answer.content)
        assert parallel or len(answer.calls) < 2, text
    assert called and wordy
