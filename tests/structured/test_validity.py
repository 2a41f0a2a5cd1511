"""A grammar is judged without its model's tokens, whatever ids its marks have there."""

from __future__ import annotations

import pytest

from headrace.answer_formats.formats import AnswerFormat, call_format, reasoning_format
from headrace.errors import RequestError
from headrace.structured.composition import Composition
from headrace.structured.grammar import Grammar
from headrace.structured.json_schema.grammar import of_schema
from headrace.structured.reasoning import after_reasoning
from headrace.structured.tools.call_grammar import CallableTool, tool_call_grammar
from headrace.structured.validity import validate

HARMONY = {
    "<|return|>": 200002, "<|constrain|>": 200003, "<|channel|>": 200005, "<|start|>": 200006,
    "<|end|>": 200007, "<|message|>": 200008, "<|call|>": 200012,
}  # fmt: skip
KIMI = {
    "<|tool_calls_section_begin|>": 163595, "<|tool_calls_section_end|>": 163596,
    "<|tool_call_begin|>": 163597, "<|tool_call_argument_begin|>": 163598,
    "<|tool_call_end|>": 163599, "<think>": 163606, "</think>": 163607,
}  # fmt: skip
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(("name", "special"), [("harmony", HARMONY), ("kimi_k2", KIMI)])
@pytest.mark.parametrize("choice", ["required", "auto"])
def test_calls_are_valid_whose_marks_are_tokens_of_a_large_vocabulary(
    name: str, special: dict[str, int], choice: str
) -> None:
    format = AnswerFormat(call_format(name))
    validate(
        tool_call_grammar(
            format, [CallableTool(name="f", parameters=SCHEMA)],
            choice="auto" if choice == "auto" else "required", parallel=True, opened=False,
            special=special,
        )
    )  # fmt: skip


def test_a_form_after_reasoning_between_such_tokens_is_judged() -> None:
    format = reasoning_format("think")
    held = {
        text: after_reasoning(Grammar("regex", text), format, opened=True, special=KIMI)
        for text in ("a+", "(")
    }
    validate(held["a+"])
    with pytest.raises(RequestError, match="cannot be compiled"):
        validate(held["("])
    form = of_schema(SCHEMA, "schema")
    validate(after_reasoning(form, format, opened=False, special=KIMI))


def test_marks_stay_apart_and_texts_that_look_like_them_stay_texts() -> None:
    rules = Composition({"<|a|>": 300, "<|b|>": 70_000})
    for number in range(40):  # ambiguous if they were one mark
        rules.rule(rules.text(f"<|a|>{number}<|b|>"))
    names = " | ".join(f"r{number}" for number in range(40))
    validate(rules.grammar(f'({names}) "<[90000]>" /<\\[80000\\]>/'))


def test_an_id_in_a_grammar_of_a_client_stays_refused() -> None:
    for marked in ({}, {"<|a|>": 300}):
        rules = Composition(marked)
        part = rules.part(Grammar("lark", 'start: "a" <[70000]>'))
        with pytest.raises(RequestError, match="70000"):
            validate(rules.grammar(f"{rules.text('<|a|>')} {part}"))
