"""Conversations in process: tools shown and called, answers read into parts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace import LLM, SamplingParams
from headrace.answer_formats.call_syntax import NO_FORMAT
from headrace.answer_formats.formats import choose_format
from headrace.conversation.format_marks import FormatMarks
from headrace.conversation.reading import AnswerReading
from headrace.embedded import embedded_model
from headrace.engine.params import SamplingParams as EngineParams
from headrace.errors import RequestError
from headrace.offline.chat import ChatAnswer, ChatOptions, ChatPrompt
from headrace.offline.results import GenerationDelta, GenerationResult
from headrace.protocol.openai.chat import REASONING_EFFORTS
from headrace.structured.grammar import Grammar
from headrace.structured.grammar_checks import GrammarChecks
from headrace.text import load_tokenizer
from headrace.weights.open import open_checkpoint
from tests.tiny import write_tiny_hf

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{# <tool_call> #}{% if false %}<tool_call>{% endif %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }}\n"
    "{% for c in m.tool_calls or [] %}{{ c.id }} {{ c.function | tojson }}\n{% endfor %}"
    "{% endfor %}"
    "{% if enable_thinking is defined %}thinking {{ enable_thinking }}\n{% endif %}"
)
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["days"],
            "additionalProperties": False,
        },
    },
}
NOW: dict[str, Any] = {"type": "function", "function": {"name": "now"}}
HELLO = [{"role": "user", "content": "x"}]
PARAMS = SamplingParams(temperature=1, seed=3, max_tokens=120)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path = write_tiny_hf(tmp_path_factory.mktemp("chat"), logit_scale=4.0)
    config = path / "tokenizer_config.json"
    fields = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**fields, "chat_template": TEMPLATE}), encoding="utf-8")
    return LLM(path, backend="reference", num_gpu_blocks_override=64)


def test_a_call_that_is_required_is_one_with_arguments_of_its_schema(llm: LLM) -> None:
    result = llm.chat(HELLO, PARAMS, tools=[WEATHER, NOW], tool_choice="required", n=2)
    for answer in result.choices:
        assert answer.finish_reason == "tool_calls"
        assert answer.content == ""
        for call in answer.tool_calls:
            arguments = json.loads(call.arguments)
            assert call.name in ("get_weather", "now")
            assert call.name == "now" or 1 <= arguments["days"] <= 9
            assert call.id.startswith("call_")
        assert answer.text.startswith("<tool_call>")
    ids = [call.id for answer in result.choices for call in answer.tool_calls]
    assert len(set(ids)) == len(ids) >= 2


def test_a_stream_has_the_calls_of_the_whole(llm: LLM) -> None:
    named = {"type": "function", "function": {"name": "get_weather"}}
    asked: dict[str, Any] = {"tools": [WEATHER, NOW], "tool_choice": named}
    whole = llm.chat(HELLO, PARAMS, **asked)
    deltas = list(llm.stream_chat(HELLO, PARAMS, **asked))
    [call] = whole.tool_calls
    [streamed] = [call for delta in deltas for call in delta.tool_calls]
    assert (streamed.name, streamed.arguments) == (call.name, call.arguments)
    assert call.name == "get_weather"
    assert "".join(delta.text for delta in deltas) == whole.text
    assert deltas[-1].finish_reason == whole.finish_reason == "tool_calls"


def test_an_answer_goes_back_as_a_message_of_the_conversation(llm: LLM) -> None:
    """The loop of tools: the answer with its calls, and what they returned, are sent again."""
    answer = llm.chat(HELLO, PARAMS, tools=[WEATHER], tool_choice="required")
    [call, *_] = answer.tool_calls
    function = {"name": "get_weather", "arguments": call.arguments}
    written = {"id": call.id, "type": "function", "function": function}
    assert answer.message == {
        "role": "assistant",
        "content": "",
        "tool_calls": [written, *(other.in_message for other in answer.tool_calls[1:])],
    }
    calls = answer.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "7"}
    ways: list[Any] = [
        answer,
        answer.message,
        {"role": "assistant", "content": answer.content, "tool_calls": calls},
        {"role": "assistant", "tool_calls": [*answer.message["tool_calls"]]},
    ]
    sent = [llm.encode_chat([*HELLO, way, result], tools=[WEATHER]) for way in ways]
    assert sent == [sent[0]] * len(ways)
    text = llm.tokenizer.decode(sent[0])
    assert f"{call.id} " in text and '"days"' in text and "tool:7" in text
    again = llm.chat([*HELLO, answer, result], PARAMS, tools=[WEATHER])
    assert again.prompt_token_ids == tuple(sent[0])


def test_a_message_has_the_reasoning_and_the_text_of_what_was_not_read() -> None:
    read = GenerationResult("<think>a</think>b", (1,), "stop", (), content="b", reasoning="a")
    assert read.message == {"role": "assistant", "content": "b", "reasoning_content": "a"}
    assert replace(read, content=None, reasoning=None).message["content"] == read.text


def test_without_tools_an_answer_is_content_as_it_stands(llm: LLM) -> None:
    result = llm.chat(HELLO, PARAMS)
    assert result.content == result.text
    assert (result.reasoning, result.tool_calls) == (None, ())
    [generated] = llm.generate([llm.encode_chat(HELLO)], PARAMS)
    assert (generated.token_ids, generated.content) == (result.token_ids, None)


def test_tools_are_in_the_prompt_whether_any_may_be_called_or_not(llm: LLM) -> None:
    plain = llm.encode_chat(HELLO)
    shown = llm.encode_chat(HELLO, tools=[NOW])
    assert len(shown) > len(plain)
    assert shown == llm.encode_chat(HELLO, tools=[NOW], tool_choice="none")
    assert '"name": "now"' in llm.tokenizer.decode(shown)


def test_marks_of_calls_are_masked_where_none_may_be_made() -> None:
    tokenizer = load_tokenizer(open_checkpoint(embedded_model()).tokenizer)
    marks = FormatMarks(choose_format("<tool_call>"), tokenizer)
    assert tuple(tokenizer.encode("<tool_call>", add_special_tokens=False)) in marks.call_ids
    prompt, checks = ChatPrompt([1], None, marks, {}), GrammarChecks()
    params = EngineParams(bad_words_token_ids=((3,),))
    held = prompt.held(params, ChatOptions.of([NOW], "none"), checks)
    assert held.bad_words_token_ids == ((3,), *marks.call_ids)
    assert prompt.held(params, ChatOptions.of(), checks) == params
    assert prompt.held(params, ChatOptions.of([NOW]), checks) == params
    formed = EngineParams(grammar=Grammar("regex", "a+"))
    form_alone = prompt.held(formed, ChatOptions.of([NOW], "none"), checks)
    assert form_alone.bad_words_token_ids == ()


def test_variables_come_by_name_as_a_mapping_and_from_the_effort(llm: LLM) -> None:
    off = llm.encode_chat(HELLO, enable_thinking=False)
    assert off == llm.encode_chat(HELLO, chat_template_kwargs={"enable_thinking": False})
    assert off == llm.encode_chat(HELLO, reasoning_effort="none")
    on = llm.encode_chat(HELLO, reasoning_effort="low")
    assert on == llm.encode_chat(HELLO, enable_thinking=True) != off


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tools": "x"}, "tools is 'x'; it must be a list of tools or None"),
        ({"tools": [{"type": "function"}]}, r"tools\[0\].*missing required field `function`"),
        ({"tools": [NOW, NOW]}, "is the name of an earlier tool"),
        ({"tool_choice": "required"}, "'required' needs `tools`"),
        ({"tools": [NOW], "tool_choice": "must"}, "tool_choice: 'must' is not supported"),
        (
            {"tools": [NOW], "tool_choice": "now"},
            '\'now\' is the name of a tool; to .*"name": "now"',
        ),
        ({"tools": [NOW], "parallel_tool_calls": 1}, "parallel_tool_calls is 1; it must be"),
        ({"reasoning_effort": 3}, "reasoning_effort is 3; it must be a text or None"),
        (
            {"reasoning_effort": "banana"},
            "reasoning_effort: 'banana' is not supported; accepted: none, minimal, low, medium,",
        ),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs is"),
    ],
)
def test_arguments_that_are_wrong_are_named(llm: LLM, fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        llm.chat(HELLO, PARAMS, **fields)


@pytest.mark.parametrize("effort", REASONING_EFFORTS)
def test_every_effort_of_the_api_is_taken(llm: LLM, effort: str) -> None:
    assert llm.encode_chat(HELLO, reasoning_effort=effort)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("temperature", r"give SamplingParams\(temperature=\.\.\.\); a variable of this name"),
        ("structured_outputs", r"give SamplingParams\(structured_outputs=\.\.\.\)"),
        ("thinking_token_budget", r"give SamplingParams\(thinking_token_budget=\.\.\.\)"),
        ("response_format", r'give SamplingParams\(structured_outputs=\{"json": \.\.\.\}\)'),
        ("guided_regex", r'give SamplingParams\(structured_outputs=\{"regex": \.\.\.\}\)'),
        ("reasoning", "give reasoning_effort="),
        ("stream", "stream_chat gives an answer piece by piece"),
    ],
)
def test_a_parameter_is_not_taken_for_a_variable_of_the_template(
    llm: LLM, name: str, remedy: str
) -> None:
    problem = f"^{name} would be a variable of the chat template here, and change nothing: {remedy}"
    with pytest.raises(RequestError, match=problem) as caught:
        llm.chat(HELLO, PARAMS, **{name: 1})
    assert caught.value.param == name
    assert llm.encode_chat(HELLO, chat_template_kwargs={name: 1}) == llm.encode_chat(HELLO)
    assert llm.encode_chat(HELLO, thinking=False) == llm.encode_chat(HELLO)


def test_a_form_is_that_of_answers_which_are_not_calls(llm: LLM) -> None:
    held = SamplingParams(seed=1, max_tokens=120, structured_outputs={"choice": ["yes", "no"]})
    result = llm.chat(HELLO, held, tools=[NOW], n=4)
    for answer in result.choices:
        assert answer.content in ("yes", "no") or answer.tool_calls


def test_a_model_without_a_format_of_calls_has_none_required(tmp_path: Path) -> None:
    llm = LLM(write_tiny_hf(tmp_path), backend="reference", num_gpu_blocks_override=64)
    with pytest.raises(RequestError, match="shows no format of tool calls"):
        llm.chat(HELLO, PARAMS, tools=[NOW], tool_choice="required")


def reading(*marks: str, opened: bool = False) -> AnswerReading:
    format = choose_format("".join(marks))
    assert format != NO_FORMAT
    return AnswerReading(format, {"now": {}}, reasoning_opened=opened, kept_ids=frozenset())


def test_reasoning_calls_and_content_are_apart() -> None:
    text = '<think>a b</think>c <tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    answer = ChatAnswer(reading("<think></think>", "<tool_call>"))
    deltas = [answer.read(GenerationDelta(letter, (1,)), (at,)) for at, letter in enumerate(text)]
    deltas.append(answer.read(GenerationDelta("", (2,), finish_reason="stop"), (len(text),)))
    assert sum(delta.reasoning_tokens for delta in deltas) == len("a b")
    assert "".join(delta.reasoning or "" for delta in deltas) == "a b"
    assert "".join(delta.content or "" for delta in deltas).strip() == "c"
    [call] = [call for delta in deltas for call in delta.tool_calls]
    assert (call.name, call.arguments) == ("now", "{}")
    assert deltas[-1].finish_reason == "tool_calls"
    assert "".join(delta.text for delta in deltas) == text


def test_a_call_that_is_cut_off_does_not_end_in_calls() -> None:
    answer = ChatAnswer(reading("<tool_call>"))
    deltas = [
        answer.read(GenerationDelta('<tool_call>{"name": "now", "arguments": {"a"', (1,)), (0,)),
        answer.read(GenerationDelta("", (), finish_reason="length"), ()),
    ]
    [call] = [call for delta in deltas for call in delta.tool_calls]
    assert call.name == "now"
    assert deltas[-1].finish_reason == "length"
