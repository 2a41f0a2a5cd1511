"""Tools of a conversation: how they reach the template, and how calls reach the client."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from headrace.answer_formats.call_syntax import AnswerFormat, CallFormat, JsonCalls
from headrace.answer_formats.formats import call_format, choose_format
from headrace.text import ChatTemplate
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says
from tests.tiny import IM_END

Start = Callable[..., Running]

TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<tool_call>{% endif %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ c.function.arguments | tojson }})"
    "{% endfor %}\n{% endfor %}"
)
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Köln"}}\n</tool_call>'
HELLO = [{"role": "user", "content": "x"}]


def with_tools(start: Start, engine: MockEngine) -> Running:
    engine.info = msgspec.structs.replace(engine.info, max_model_len=2048)
    return start(
        engine, template=ChatTemplate(TEMPLATE), answer_format=choose_format("<tool_call>")
    )


def deltas(events: list[Any]) -> list[Any]:
    return [choice["delta"] for event in events for choice in event["choices"]]


def test_a_call_is_a_field_of_its_own(start: Start) -> None:
    reply = with_tools(start, MockEngine(says(CALL))).chat(tools=[WEATHER])
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function"
    assert call["id"].startswith("call_")
    assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Köln"}'}


def test_text_before_calls_is_content_and_calls_have_numbers(start: Start) -> None:
    server = with_tools(start, MockEngine(says(f"Let me see.\n{CALL}\n{CALL}")))
    message = server.chat(tools=[WEATHER])["choices"][0]["message"]
    assert message["content"] == "Let me see."
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    events = server.stream_chat(tools=[WEATHER])
    starts = [
        call for delta in deltas(events) for call in delta.get("tool_calls", ()) if "id" in call
    ]
    assert [call["index"] for call in starts] == [0, 1]
    assert all(call["function"]["arguments"] == "" for call in starts)


def test_a_stream_joins_to_the_whole(start: Start) -> None:
    server = with_tools(start, MockEngine(says(CALL)))
    events = server.stream_chat(tools=[WEATHER])
    assert deltas(events)[0] == {"role": "assistant", "content": ""}
    calls = [call for delta in deltas(events) for call in delta.get("tool_calls", ())]
    assert calls[0]["function"] == {"name": "get_weather", "arguments": ""}
    assert all("id" not in call and "type" not in call for call in calls[1:])
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert json.loads(arguments) == {"city": "Köln"}
    assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert not any(delta.get("content") for delta in deltas(events))


def test_tools_reach_the_template_without_what_is_the_apis_own(start: Start) -> None:
    engine = MockEngine(says("x"))
    function = {**WEATHER["function"], "strict": True}
    with_tools(start, engine).chat(tools=[{"type": "function", "function": function}])
    prompt = bytes(engine.submitted[0].prompt_token_ids).decode()
    assert json.loads(prompt.partition("\n")[0]) == WEATHER


def test_a_tool_without_parameters_has_an_empty_object_of_them(start: Start) -> None:
    engine = MockEngine(says("x"))
    with_tools(start, engine).chat(tools=[{"function": {"name": "now"}}])
    prompt = bytes(engine.submitted[0].prompt_token_ids).decode()
    shown = json.loads(prompt.partition("\n")[0])["function"]
    assert shown == {"name": "now", "parameters": {"type": "object", "properties": {}}}


def test_without_a_choice_of_tools_there_is_no_call_and_the_prompt_stays(start: Start) -> None:
    engine = MockEngine(says(CALL))
    server = with_tools(start, engine)
    reply = server.chat(tools=[WEATHER], tool_choice="none")
    server.chat(tools=[WEATHER])
    assert engine.submitted[0].prompt_token_ids == engine.submitted[1].prompt_token_ids
    assert reply["choices"][0]["message"] == {
        "role": "assistant", "content": CALL, "refusal": None,
    }  # fmt: skip
    assert reply["choices"][0]["finish_reason"] == "stop"


def test_marks_of_calls_are_masked_where_none_may_be_made(start: Start) -> None:
    engine = MockEngine(says("x"))
    engine.info = msgspec.structs.replace(engine.info, max_model_len=2048)
    format = choose_format("[TOOL_CALLS]")
    assert isinstance(format.calls, CallFormat)
    syntax = JsonCalls(begins=("<|im_end|>", "spelled", "<|im_end|>calls"))
    calls = replace(format.calls, syntax=(syntax,))
    server = start(engine, template=ChatTemplate(TEMPLATE), answer_format=AnswerFormat(calls=calls))
    masked = (*b"no",), (*b" no",), (IM_END,), (IM_END, *b"calls")
    server.chat(tools=[WEATHER], tool_choice="none", bad_words=["no"])
    server.chat(tools=[WEATHER])
    server.chat(tools=[WEATHER], tool_choice="none", response_format={"type": "json_object"})
    server.chat(tool_choice="none")
    server.chat(tools=[WEATHER], tool_choice="none", response_format={"type": "text"}, grammar="")
    found = [submit.params.bad_words_token_ids for submit in engine.submitted]
    assert found == [masked, (), (), (), masked[2:]]


def test_what_a_format_writes_around_content_is_not_content_without_calls(start: Start) -> None:
    engine = MockEngine(says("<|START_RESPONSE|>Hi.<|END_RESPONSE|>"))
    engine.info = msgspec.structs.replace(engine.info, max_model_len=2048)
    format = AnswerFormat(call_format("command_r7b"))
    server = start(engine, template=ChatTemplate(TEMPLATE), answer_format=format)
    for choice in ("none", "auto"):
        reply = server.chat(tools=[WEATHER], tool_choice=choice)
        assert reply["choices"][0]["message"]["content"] == "Hi."


def test_a_server_may_keep_tools_that_are_not_called_from_the_prompt(start: Start) -> None:
    engine = MockEngine(says("x"))
    engine.info = msgspec.structs.replace(engine.info, max_model_len=2048)
    server = start(
        engine,
        template=ChatTemplate(TEMPLATE),
        answer_format=choose_format("<tool_call>"),
        excludes_unused_tools=True,
    )
    server.chat(tools=[WEATHER], tool_choice="none")
    server.chat(tools=[WEATHER])
    without, shown = (bytes(submit.prompt_token_ids) for submit in engine.submitted)
    assert b"get_weather" not in without and b"get_weather" in shown


@pytest.mark.parametrize("arguments", ['{"city": "Köln"}', {"city": "Köln"}])
def test_arguments_reach_the_template_as_mappings(start: Start, arguments: Any) -> None:
    engine = MockEngine(says("x"))
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "7"},
    ]
    body = {"messages": messages, "tools": [WEATHER]}
    assert with_tools(start, engine).post("/v1/chat/completions", body).status_code == 200
    assert 'f({"city": "Köln"})' in bytes(engine.submitted[0].prompt_token_ids).decode()


def test_a_call_that_is_cut_is_reported_and_the_reason_is_length(start: Start) -> None:
    server = with_tools(start, MockEngine(says(CALL[:50], ends=False)))
    choice = server.chat(tools=[WEATHER])["choices"][0]
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"


def test_an_answer_without_a_call_is_content(start: Start) -> None:
    choice = with_tools(start, MockEngine(says("No."))).chat(tools=[WEATHER])["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "No.", "refusal": None}
    assert choice["finish_reason"] == "stop"


def test_choices_are_read_apart(start: Start) -> None:
    server = with_tools(start, MockEngine(says(CALL)))
    choices = server.chat(tools=[WEATHER], n=2)["choices"]
    assert [len(choice["message"]["tool_calls"]) for choice in choices] == [1, 1]


def test_log_probabilities_of_calls_come_in_order(start: Start) -> None:
    server = with_tools(start, MockEngine(says(CALL)))
    events = server.stream_chat(tools=[WEATHER], logprobs=True, top_logprobs=0)
    told = [
        token["token"]
        for event in events
        for choice in event["choices"]
        for token in (choice["logprobs"] or {"content": []})["content"]
    ]
    whole = server.chat(tools=[WEATHER], logprobs=True)["choices"][0]["logprobs"]["content"]
    assert told == [token["token"] for token in whole]


def test_the_openai_package_reads_calls(start: Start) -> None:
    server = with_tools(start, MockEngine(says(CALL)))
    chat = server.openai.chat.completions
    tools: Any = [WEATHER]
    messages: Any = HELLO
    whole = chat.create(model="alias", messages=messages, tools=tools)
    assert whole.choices[0].message.tool_calls is not None
    with chat.stream(model="alias", messages=messages, tools=tools) as stream:
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert calls is not None
    assert json.loads(calls[0].function.arguments) == {"city": "Köln"}  # type: ignore[union-attr]
