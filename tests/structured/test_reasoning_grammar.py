"""Reasoning is free, and what follows it is held to a grammar of any kind."""

from __future__ import annotations

import re

import pytest

from headrace.answer_formats.call_syntax import ReasoningFormat, ThinkTags
from headrace.answer_formats.formats import REASONING_FORMATS, reasoning_format
from headrace.errors import RequestError
from headrace.structured.compile import compile_grammar
from headrace.structured.composition import Composition
from headrace.structured.grammar import Grammar
from headrace.structured.json_schema.grammar import of_schema
from headrace.structured.reasoning import after_reasoning
from headrace.structured.request import grammar_of
from headrace.structured.validity import validate
from tests.structured.matching import Language
from tests.structured.walking import special_of, walker_over_bytes

BODIES = [
    (Grammar("choice", '["yes", "no/a\\n"]'), ["yes", "no/a\n"], ["maybe", "ye"]),
    (Grammar("regex", r"[a-c]+/\d"), ["ab/1"], ["ab", "d/1"]),
    (Grammar("lark", 'start: "a" other\nother: /[0-9]+/ p0?\np0: "!"'), ["a12", "a1!"], ["a"]),
    (of_schema({"type": "integer"}, "schema"), ["12"], ["1.5", '"a"']),
]
THINK = ("<think>", "</think>")


@pytest.mark.parametrize(("body", "valid", "invalid"), BODIES)
@pytest.mark.parametrize("marks", [(), THINK], ids=["text", "control tokens"])
def test_any_grammar_may_follow_reasoning(
    body: Grammar, valid: list[str], invalid: list[str], marks: tuple[str, ...]
) -> None:
    walker = walker_over_bytes(marks)
    format = reasoning_format("think")
    for opened in (False, True):
        grammar = after_reasoning(body, format, opened=opened, special=special_of(walker))
        validate(grammar)
        compiled = compile_grammar(grammar, walker.tokenizer)

        def has(text: str) -> bool:
            matcher = compiled.matcher()  # noqa: B023
            ids = [
                token_id
                for part in text.replace("<", "\0<").replace(">", ">\0").split("\0")
                for token_id in walker.ids_of(part)
            ]
            return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

        before = "" if opened else "<think>"
        for text in valid:
            assert has(f"{before}Hm, <b> </thin {text} \n</think>\n\n{text}"), text
            assert has(f"{before}</think>{text}"), text
            assert has(text) is not opened
        for text in invalid:
            assert not has(f"{before}Hm.</think>\n\n{text}"), text
        assert not has(f"{before}Hm.")


WITHOUT_TEXT: list[dict[str, object]] = [
    {"guided_regex": r"[^\s\S]"},
    {"guided_grammar": "start: A\nA: /a/ & /b/"},
]


@pytest.mark.parametrize("opened", [None, False, True])
@pytest.mark.parametrize("fields", WITHOUT_TEXT, ids=str)
@pytest.mark.parametrize("format", ["think", "harmony"])
def test_no_text_behind_reasoning_is_refused_as_no_text_alone(
    fields: dict[str, object], opened: bool | None, format: str
) -> None:
    grammar = grammar_of(fields)
    assert grammar is not None
    if opened is not None:
        reasoning = reasoning_format(format)
        special = special_of(walker_over_bytes(THINK))
        grammar = after_reasoning(grammar, reasoning, opened=opened, special=special)
    with pytest.raises(RequestError, match="no text belongs to it") as refused:
        validate(grammar, param="response_format")
    assert (refused.value.code, refused.value.param) == ("invalid_grammar", "response_format")


LONG = {"type": "string", "minLength": 2}
FAULTS: list[tuple[dict[str, object], str, str]] = [
    ({"oneOf": [{"type": "string"}, LONG]}, "oneOf", "#/oneOf"),
    ({"properties": {"a": {"oneOf": [LONG, LONG]}}}, "oneOf", "#/properties/a/oneOf"),
    ({"patternProperties": {"^a": {}, "a$": {}}}, "patternProperties", "#/patternProperties"),
    ({"properties": {"a": {"type": "strnig"}}}, "type", "#/properties/a/type"),
    ({"items": {"type": [3]}}, "type", "#/items/type"),
    ({"type": "number", "multipleOf": 0}, "multipleOf", "#/multipleOf"),
    ({"type": "integer", "minimum": 5, "maximum": 3}, "minimum", "#/minimum"),
    (
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "required": ["a"],
         "$defs": {"x": {"type": "string", "minLength": 5, "maxLength": 3}}},
        "minLength", "#/$defs/x/minLength",
    ),
    ({"type": "object", "required": ["a"], "additionalProperties": False}, "required",
     "#/required"),
    ({"enum": []}, "enum", "#/enum"),
]  # fmt: skip


@pytest.mark.parametrize("behind", [False, True], ids=["alone", "behind reasoning"])
@pytest.mark.parametrize(("schema", "keyword", "pointer"), FAULTS, ids=str)
def test_a_fault_of_a_schema_is_named_by_keyword_and_pointer_wherever_it_stands(
    schema: dict[str, object], keyword: str, pointer: str, behind: bool
) -> None:
    with pytest.raises(RequestError) as refused:
        grammar = of_schema(schema, "schema")
        if behind:
            think = reasoning_format("think")
            grammar = after_reasoning(grammar, think, opened=False, special={})
        validate(grammar, param="schema")
    assert f"'{keyword}'" in str(refused.value)
    assert re.search(rf" {re.escape(pointer)}(?=[: ]|$)", str(refused.value)), refused.value
    assert "coerce_one_of" not in str(refused.value)


def test_a_part_that_begins_with_a_control_token_has_texts() -> None:
    walker = walker_over_bytes(THINK)
    rules = Composition(special_of(walker))
    inner = rules.part(Composition(special_of(walker)).grammar(rules.text("<think>a")))
    validate(rules.grammar(inner))


def test_an_answer_keeps_its_marks_and_ends_reasoning_at_the_first() -> None:
    body = Grammar("regex", "a+")
    language = Language(after_reasoning(body, reasoning_format("granite"), opened=True, special={}))
    assert language.has("x</think>\n<response>aa</response>")
    assert language.has("x</think>aa")
    assert not language.has("x</think>\n<response>aa")
    assert not language.has("x</think>y</think>aa")


def test_a_mark_that_would_end_reasoning_in_another_way_does_not_come() -> None:
    format = reasoning_format("think")
    language = Language(after_reasoning(Grammar("regex", "a+"), format, opened=True, special={}))
    assert isinstance(format.tags, ThinkTags)
    for mark in format.tags.also_ended_by:
        assert not language.has(f"x{mark}x</think>a")
        assert language.has(f"x{mark[:-1]}x</think>a")
        assert language.has(f"x{mark[:-2]}</think>a")


TAGGED = [format for format in REASONING_FORMATS if isinstance(format.tags, ThinkTags)]


def test_every_format_but_harmony_has_tags() -> None:
    others = [format.name for format in REASONING_FORMATS if format not in TAGGED]
    assert others == ["harmony"]
    assert len(TAGGED) > 1


@pytest.mark.parametrize("control_tokens", [False, True], ids=["text", "control tokens"])
@pytest.mark.parametrize("format", TAGGED, ids=lambda format: format.name)
def test_every_format_reasons_in_all_its_marks_and_answers_between_them(
    format: ReasoningFormat, control_tokens: bool
) -> None:
    tags = format.tags
    assert isinstance(tags, ThinkTags)
    begins, ends = (tags.begin, *tags.other_begins), (tags.end, *tags.other_ends)
    texts = (*begins, *ends, *(mark for pair in format.wraps for mark in pair))
    marks = tuple(sorted({mark for text in texts for mark in re.findall(r"<[^<>\s]+>", text)}))
    walker = walker_over_bytes(marks if control_tokens else ())
    for opened in (False, True):
        held = after_reasoning(
            Grammar("regex", "a+"), format, opened=opened, special=special_of(walker)
        )
        compiled = compile_grammar(held, walker.tokenizer)

        def has(text: str) -> bool:
            matcher = compiled.matcher()  # noqa: B023
            ids = walker.ids_of(text)
            return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

        for begin in ("",) if opened else begins:
            for end in ends:
                assert has(f"{begin}Hm, <b> {end}\n\naa")
                assert not has(f"{begin}Hm, <b> {end}\n\nab")
        for before, after in format.wraps:
            assert has(f"{'' if opened else begins[0]}Hm.{ends[0]}{before}aa{after}")
            assert opened or has(f"{before}aa{after}")


def test_harmony_answers_on_its_final_channel() -> None:
    grammar = after_reasoning(
        of_schema({"type": "boolean"}, "schema"), reasoning_format("harmony"), opened=False,
        special={},
    )  # fmt: skip
    language = Language(grammar)
    thought = "<|channel|>analysis<|message|>Hm <| .<|end|><|start|>assistant"
    assert language.has(thought + "<|channel|>final<|message|>true")
    assert language.has(thought * 2 + "<|channel|>final <|constrain|>json<|message|>false")
    assert language.has("<|channel|>final<|message|>true")
    assert not language.has("true")
    assert not language.has(thought + "<|channel|>final<|message|>yes")


def test_equal_grammars_come_out_equal_and_without_reasoning_nothing_changes() -> None:
    body = of_schema({"type": "integer"}, "schema")
    assert after_reasoning(body, None, opened=False, special={}) is body
    special = {"</think>": 7, "<|open|>": 8, "<|close|>": 9, "<|sep|>": 10}
    for format in REASONING_FORMATS:
        once = after_reasoning(body, format, opened=False, special=special)
        assert once == after_reasoning(body, format, opened=False, special=special)
        validate(once)


def test_marks_of_calls_do_not_come_where_they_would_end_reasoning() -> None:
    format, body = reasoning_format("think"), Grammar("regex", "a+")
    free = Language(after_reasoning(body, format, opened=True, special={}))
    held = Language(after_reasoning(body, format, opened=True, special={}, calls=("<tool_call>",)))
    assert free.has("x<tool_call>x</think>a")
    assert not held.has("x<tool_call>x</think>a")
    assert held.has("x<tool_call x</think>a")
