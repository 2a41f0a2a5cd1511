"""What a grammar of calls lets pass is read as calls that the tools' schemas accept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

import jsonschema_rs
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
from headrace.structured.compile import compile_grammar
from headrace.structured.grammar import Grammar
from headrace.structured.tools.call_grammar import CallableTool, tool_call_grammar
from headrace.weights.open import open_checkpoint
from tests.answer_formats.cuts import merged
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


LEAST_WALKS = 5
"""Answers of a cell beside the first; more are drawn until each kind of answer was there."""


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
        if seed >= LEAST_WALKS and several and len(called) > 1:
            break
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
        if seed >= LEAST_WALKS and called and wordy:
            break
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


@pytest.mark.parametrize("bad", ["", "a b", "1a", "a" * 300, "ä", "a<b"])
def test_a_name_that_cannot_be_written_is_refused(bad: str) -> None:
    with pytest.raises(RequestError, match=r"tools\[0\]\.function\.name") as caught:
        tool_call_grammar(
            answer_format("hermes"), [CallableTool(name=bad, param="tools[0].function")],
            choice="required", parallel=False, opened=False, special={},
        )  # fmt: skip
    assert caught.value.param == "tools[0].function.name"


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
