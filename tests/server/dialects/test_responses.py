"""OpenAI's Responses API on the server, read by OpenAI's own package."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace.answer_formats.formats import choose_format
from headrace.text import ChatTemplate
from tests.server.chat.test_reasoning import THOUGHT, thinking
from tests.server.chat.test_tools import CALL, TEMPLATE
from tests.server.conftest import MODEL, Running
from tests.server.mock_engine import INFO, MockEngine, says

Start = Callable[..., Running]

WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


def answer(server: Running, **fields: Any) -> dict[str, Any]:
    """The response to a request that has to succeed."""
    reply = server.post("/v1/responses", {"model": MODEL, "input": "x", **fields})
    assert reply.status_code == 200, reply.text
    told: dict[str, Any] = reply.json()
    return told


def refused(server: Running, status: int = 400, **fields: Any) -> dict[str, Any]:
    reply = server.post("/v1/responses", {"model": MODEL, "input": "x", **fields})
    assert reply.status_code == status, reply.text
    error: dict[str, Any] = reply.json()["error"]
    return error


def prompts(server: Running) -> list[str]:
    tokenizer = server.state.serving().model.tokenizer
    return [
        tokenizer.decode(each.prompt_token_ids, skip_special_tokens=False)
        for each in server.engine.submitted
    ]


def roomy(engine: MockEngine) -> MockEngine:
    engine.info = msgspec.structs.replace(INFO, max_model_len=2048)
    return engine


def with_tools(start: Start, engine: MockEngine) -> Running:
    template, form = ChatTemplate(TEMPLATE), choose_format("<tool_call>")
    return start(roomy(engine), template=template, answer_format=form)


def test_a_response_is_answered_whole(start: Start) -> None:
    server = start(MockEngine(says("hello", cached_tokens=3)))
    told = answer(server, instructions="Be brief.", metadata={"a": "b"}, temperature=0.5)
    assert told["id"].startswith("resp_")
    assert (told["object"], told["status"], told["store"]) == ("response", "completed", True)
    assert (told["instructions"], told["metadata"], told["temperature"]) == (
        "Be brief.", {"a": "b"}, 0.5,
    )  # fmt: skip
    (item,) = told["output"]
    assert item["id"].startswith("msg_")
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"][0]["text"] == "hello"
    usage = told["usage"]
    assert usage["input_tokens"] == len(server.engine.submitted[0].prompt_token_ids)
    assert usage["input_tokens_details"]["cached_tokens"] == 3
    assert (usage["output_tokens"], usage["output_tokens_details"]) == (6, {"reasoning_tokens": 0})


def test_openais_package_reads_a_stream_whose_parts_make_the_response(start: Start) -> None:
    server = start(MockEngine(says("hello wörld", cut=2)))
    events = list(server.openai.responses.create(model=MODEL, input="x", stream=True))
    assert [event.type for event in events if "delta" not in event.type] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(texts) == "hello wörld"
    last = events[-1]
    assert last.type == "response.completed"
    assert last.response.output_text == "hello wörld"
    found = server.openai.responses.retrieve(last.response.id)
    assert found.to_dict() == last.response.to_dict()


def test_an_answer_cut_by_its_limit_is_incomplete(start: Start) -> None:
    server = start(MockEngine(says("hello")))
    told = answer(server, max_output_tokens=3)
    assert (told["status"], told["incomplete_details"]) == (
        "incomplete", {"reason": "max_output_tokens"},
    )  # fmt: skip
    assert told["output"][0]["status"] == "incomplete"
    events = list(
        server.openai.responses.create(model=MODEL, input="x", max_output_tokens=3, stream=True)
    )
    assert events[-1].type == "response.incomplete"


def test_a_function_is_called_and_its_result_read(start: Start) -> None:
    server = with_tools(start, MockEngine(says(CALL)))
    told = answer(server, tools=[WEATHER])
    (call,) = told["output"]
    assert (call["type"], call["name"], call["status"]) == (
        "function_call", "get_weather", "completed",
    )  # fmt: skip
    assert json.loads(call["arguments"]) == {"city": "Köln"}
    server.engine.reply = says("Sunny.")
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
    second = answer(server, input=[output], tools=[WEATHER], previous_response_id=told["id"])
    assert second["output"][0]["content"][0]["text"] == "Sunny."
    assert "get_weather(" in prompts(server)[-1]
    assert "tool:sun" in prompts(server)[-1]


def test_a_streamed_call_grows_and_ends(start: Start) -> None:
    server = with_tools(start, MockEngine(says(CALL, cut=3)))
    tools: Any = [WEATHER]
    events: list[Any] = list(
        server.openai.responses.create(model=MODEL, input="x", tools=tools, stream=True)
    )
    kinds = [event.type for event in events]
    assert "response.function_call_arguments.delta" in kinds
    assert kinds[-1] == "response.completed"
    pieces = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    (done,) = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert "".join(pieces) == done.arguments
    assert json.loads(done.arguments) == {"city": "Köln"}


def test_allowed_tools_and_parallel_calls_hold_as_in_chat(start: Start) -> None:
    server = with_tools(start, MockEngine(says(CALL)))
    other = {**WEATHER, "name": "other"}
    choice = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "get_weather"}],
    }
    told = answer(server, tools=[WEATHER, other], tool_choice=choice, parallel_tool_calls=False)
    assert told["tool_choice"] == choice
    assert told["parallel_tool_calls"] is False
    grammar = server.engine.submitted[0].params.grammar
    assert grammar is not None
    assert "get_weather" in grammar.text
    assert "other" not in grammar.text


def test_reasoning_is_an_item_before_the_answer_and_is_counted(start: Start) -> None:
    server = thinking(start, MockEngine(says(THOUGHT)))
    told = answer(server, reasoning={"effort": "high"})
    thought, message = told["output"]
    assert thought["type"] == "reasoning"
    assert thought["content"] == [{"type": "reasoning_text", "text": "Two and two."}]
    assert message["content"][0]["text"] == "Four."
    assert told["reasoning"]["effort"] == "high"
    assert told["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_reasoning_has_a_budget(start: Start) -> None:
    server = thinking(start, MockEngine(says(THOUGHT)))
    answer(server, reasoning={"max_tokens": 7})
    budget = server.engine.submitted[0].params.thinking
    assert budget is not None and budget.max_tokens == 7
    for wrong, said in ((-1, "is not between 0"), ("7", "expected an integer")):
        refused = server.post("/v1/responses", {"input": "x", "reasoning": {"max_tokens": wrong}})
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert error["param"] == "reasoning.max_tokens" and said in error["message"]


def test_sealed_reasoning_comes_back_without_a_store(start: Start) -> None:
    template = ChatTemplate(
        "{% for m in messages %}{% if m.reasoning %}<think>{{ m.reasoning }}</think>{% endif %}"
        "{{ m.content }};{% endfor %}"
    )
    server = thinking(start, roomy(MockEngine(says(THOUGHT))), template)
    told = answer(server, store=False, include=["reasoning.encrypted_content"])
    thought, message = told["output"]
    assert "Two and two" not in thought["encrypted_content"]
    del thought["content"]
    turns = [{"role": "user", "content": "x"}, thought, message, {"role": "user", "content": "y"}]
    answer(server, store=False, input=turns)
    assert prompts(server)[-1] == "x;<think>Two and two.</think>Four.;y;"


def test_an_answer_is_held_to_a_schema(start: Start) -> None:
    server = start(roomy(MockEngine(says('{"a":1}'))))
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "name": "a", "schema": schema, "strict": True}
    told = answer(server, text={"format": form})
    assert told["text"]["format"]["schema"] == schema
    assert server.engine.submitted[0].params.grammar is not None


def test_openais_package_parses_an_answer_of_a_model_of_pydantics(start: Start) -> None:
    pydantic = pytest.importorskip("pydantic")
    server = start(roomy(MockEngine(says('{"city":"Köln","degrees":21}'))))
    kind = pydantic.create_model("Weather", city=(str, ...), degrees=(int, ...))
    parsed = server.openai.responses.parse(model=MODEL, input="x", text_format=kind)
    assert parsed.output_parsed == kind(city="Köln", degrees=21)
    with server.openai.responses.stream(model=MODEL, input="x", text_format=kind) as stream:
        stream.until_done()
        assert stream.get_final_response().output_parsed == kind(city="Köln", degrees=21)
    assert all(submit.params.grammar is not None for submit in server.engine.submitted)


def test_log_probabilities_are_included_on_request(start: Start) -> None:
    server = start(MockEngine(says("hi")))
    told = answer(server, include=["message.output_text.logprobs"], top_logprobs=2)
    logprobs = told["output"][0]["content"][0]["logprobs"]
    assert "".join(one["token"] for one in logprobs).startswith("hi")
    assert len(logprobs[0]["top_logprobs"]) == 2
    assert answer(server, top_logprobs=2)["output"][0]["content"][0]["logprobs"] == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"truncation": "auto"}, "truncation"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "file_search", "vector_store_ids": []}]},
         "tools[0].type"),
        ({"tools": [{"type": "custom", "name": "c"}]}, "tools[0].type"),
        ({"tools": [{"type": "mcp", "server_label": "s"}]}, "tools[0].type"),
        ({"input": [{"role": "user", "content": [
            {"type": "input_text", "text": "x"},
            {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}]},
         "input[0].content[1].type"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]},
         "input"),
        ({"input": [{"role": "nobody", "content": "x"}]}, "input[0].role"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_by_the_clients_name(
    start: Start, fields: dict[str, Any], param: str
) -> None:
    server = start(MockEngine(says("hello")))
    assert refused(server, **fields)["param"] == param
    assert server.engine.submitted == []


def test_what_is_wrong_with_a_later_turn_is_named_by_its_own_place(start: Start) -> None:
    server = start(MockEngine(says("hello")))
    first = answer(server)["id"]
    error = refused(server, input=[{"role": "nobody", "content": "x"}], previous_response_id=first)
    assert error["param"] == "input[0].role"


def test_tokens_are_counted_as_they_would_be_used(start: Start) -> None:
    server = start(roomy(MockEngine(says("hello"))))
    first = answer(server, input="one")
    fields = {"model": MODEL, "input": "two", "previous_response_id": first["id"]}
    counted = server.openai.responses.input_tokens.count(**fields)
    second = answer(server, **fields)
    assert counted.input_tokens == second["usage"]["input_tokens"]


def test_a_model_may_be_left_out_and_another_is_not_found(start: Start) -> None:
    server = start(MockEngine(says("hello")))
    reply = server.post("/v1/responses", {"input": "x"})
    assert (reply.status_code, reply.json()["model"]) == (200, MODEL)
    assert refused(server, 404, model="another")["code"] == "model_not_found"


def test_a_call_that_max_tokens_cut_off_does_not_end_its_conversation(start: Start) -> None:
    cut = CALL[: CALL.index("ln")]
    server = with_tools(start, MockEngine(says(cut, ends=False)))
    first = answer(server, tools=[WEATHER], max_output_tokens=len(cut.encode()))
    (call,) = first["output"]
    assert (first["status"], call["type"]) == ("incomplete", "function_call")
    assert (call["status"], call["arguments"]) == ("incomplete", '{"city": "Kö')
    for fields in (
        {"previous_response_id": first["id"]},
        {"input": [{"role": "user", "content": "x"}, call]},
    ):
        answer(server, tools=[WEATHER], **fields)
        assert r'get_weather({"INVALID_JSON": "{\"city\": \"Kö"})' in prompts(server)[-1]
