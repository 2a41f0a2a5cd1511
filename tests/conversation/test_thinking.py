"""Where reasoning begins and ends: by the ids of a prompt, and for its budget as for its reader."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.answer_formats.formats import (
    AnswerFormat,
    call_format,
    reasoning_format,
)
from headrace.conversation.format_marks import FormatMarks, ReasoningMarks
from headrace.conversation.reading import reading_of
from headrace.conversation.thinking import ends_in_reasoning, start_after, start_of_reading
from headrace.embedded import embedded_model
from headrace.engine.drafts.thinking import Thinking
from headrace.engine.params import ThinkingBudget
from headrace.text import Tokenizer, load_tokenizer
from headrace.weights.open import open_checkpoint


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(open_checkpoint(embedded_model()).tokenizer)


def test_a_prompt_ends_in_reasoning_where_its_last_mark_begins_it() -> None:
    marks = ReasoningMarks((7, 8), (9,))
    ends = [
        ends_in_reasoning(ids, marks)
        for ids in ([], [7, 8], [7, 8, 1], [7, 8, 9], [9, 7, 8], [7, 1, 8], [8, 7])
    ]
    assert ends == [False, True, True, False, True, False, False]


def test_a_prompt_of_ids_is_followed_by_reasoning_where_the_model_does_reason(
    tokenizer: Tokenizer,
) -> None:
    thinks = FormatMarks(AnswerFormat(None, reasoning_format("think")), tokenizer)
    opened = start_after(tokenizer.encode("a <think>", add_special_tokens=False), thinks)
    closed = start_after(tokenizer.encode("<think></think>", add_special_tokens=False), thinks)
    assert opened is not None and opened.is_open
    assert closed is not None and not closed.is_open
    assert start_after([1], FormatMarks(AnswerFormat(), tokenizer)) is None


TOOLS: dict[str, dict[str, Any]] = {"get_time": {}, "get_time_now": {}}
THOUGHTS = {
    "a <tool_call>\n<function=get_time>\n<parameter=zone>\n1\n</parameter>": "qwen3_coder",
    "a <tool_call><function=get_time></function>": "qwen3_coder",
    '<tool_call>\n{"name": "get_time", "arguments": {}}': "qwen3_coder",
    '<tool_call>{"name":"get_time_now","arguments":{"a":1}}': "qwen3_coder",
    "<tool_call>get_time\n<arg_key>a</arg_key>": "glm",
    "<tool_call><tool_call>get_time_now</tool_call>": "glm",
    "<tool_call> is a mark, a": "",
    "<tool_call>\n<function=get_tide>\n<parameter=a>": "",
    "<tool_call>get_time is one, get_timer</tool_call>": "",
    "<tool_call>get_time_no\n<arg_key>": "",
    '<tool_call>\n{"name": "get_tide", "arguments": {}}': "",
    "a </think>b": "qwen3_coder glm",
    "a <tool_call>\n<function=get_time</think>": "qwen3_coder glm",
}
"""Texts within reasoning, and of which formats of calls they end it."""


@pytest.mark.parametrize("name", ["qwen3_coder", "glm"])
@pytest.mark.parametrize("text", THOUGHTS)
def test_the_same_texts_end_reasoning_for_its_budget_and_its_reader(
    tokenizer: Tokenizer, name: str, text: str
) -> None:
    format = AnswerFormat(call_format(name), reasoning_format("think"))
    marks = FormatMarks(format, tokenizer)
    reading = reading_of(marks, tools=TOOLS, prompt="<think>", continues=False)
    start = start_of_reading(reading, tokenizer, is_held=False)
    assert reading is not None and start is not None and start.is_open
    thinking = Thinking(ThinkingBudget.between(*start.marks, max_tokens=99, is_open=True), 0)
    parser = reading.parser()
    parser.feed(text)
    is_over = thinking.left(tokenizer.encode(text, add_special_tokens=False)) is None
    assert is_over == (not parser.in_reasoning) == (name in THOUGHTS[text])
