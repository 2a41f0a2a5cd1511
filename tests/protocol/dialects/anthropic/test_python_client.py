"""Anthropic's own Python package reads what is written here, and writes what is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.anthropic import CLIENT, PROVIDER
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import replayed
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
)
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Signature, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.anthropic.recorded import streams
from tests.protocol.neutral.streams import read_stream

anthropic = pytest.importorskip("anthropic")
# What the package itself uses: httpx until its version 1, httpx2 since then.
httpx = pytest.importorskip(
    "httpx" if int(anthropic.__version__.partition(".")[0]) < 2 else "httpx2"
)

REPLY = ChatReply(
    dialect="openai_chat",
    id="chatcmpl-1",
    model="gpt",
    choices=(
        Choice(
            parts=(
                Thinking(text="hm", signature=Signature("openai", "E")),
                Thinking(text="", signature=Signature("openai", "E"), redacted=True),
                Text(text="Grüße\u2028"),
                ToolCall(
                    id="call_1",
                    name="f",
                    arguments='{"ä":1}',
                    signature=Signature("gemini", "G"),
                ),
                ToolCall(id="call_2", name="f", arguments=""),
            ),
            finish="tool_calls",
        ),
    ),
    usage=TokenUsage(input_tokens=3, cache_read_tokens=2, output_tokens=4, reasoning_tokens=1),
)


class _Server:
    """Answers as the gateway would. calls: what it read."""

    def __init__(self, events: list[Any] | None = None) -> None:
        self.calls: list[ChatCall] = []
        self._events = events

    def __call__(self, request: Any) -> Any:
        path = request.url.path
        try:
            call = CLIENT.read_call(request.content, path, dict(request.headers))
        except RequestError as error:
            failure = Failure(kind="bad_request", message=str(error))
            return httpx.Response(400, content=CLIENT.write_failure(failure, 400, "req_1"))
        self.calls.append(call)
        if path.endswith("count_tokens"):
            return httpx.Response(200, content=CLIENT.write_token_count(17))
        if not call.stream:
            return httpx.Response(200, content=CLIENT.write_reply(REPLY, call))
        writer = CLIENT.stream_writer(call)
        events = list(replayed(REPLY)) if self._events is None else self._events
        stream = b"".join(writer.write(one) + writer.keep_alive() for one in events)
        headers = {"content-type": CLIENT.stream_type()}
        return httpx.Response(200, content=stream, headers=headers)


def client(server: Any) -> Any:
    return anthropic.Anthropic(
        api_key="k",
        base_url="http://gateway",
        max_retries=0,
        http_client=httpx.Client(transport=httpx.MockTransport(server)),
    )


CALL = ChatCall(dialect="anthropic", model="m", messages=())
ASK: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hi"}],
}


def check(message: Any) -> None:
    assert isinstance(message, anthropic.types.Message)
    kinds = [block.type for block in message.content]
    assert kinds == ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
    anthropic.types.Message.model_validate(json.loads(message.model_dump_json()))
    assert message.content[2].text == "Grüße\u2028"
    assert message.content[3].input == {"ä": 1}
    assert message.content[4].input == {}
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (3, 5)
    assert message.usage.cache_read_input_tokens == 2


def test_a_reply() -> None:
    check(client(_Server()).messages.create(**ASK))


def test_a_stream_and_the_turn_after() -> None:
    server = _Server()
    speaker = client(server)
    with speaker.messages.stream(**ASK) as stream:
        assert "".join(stream.text_stream) == "Grüße\u2028"
        message = stream.get_final_message()
    check(message)
    turns = [
        *ASK["messages"],
        {"role": "assistant", "content": message.content},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": message.content[3].id, "content": "ok"}
            ],
        },
    ]
    speaker.messages.create(**ASK | {"messages": turns})
    _, asked, answered = server.calls[-1].messages
    assert asked.parts[:4] == REPLY.choices[0].parts[:4]
    assert getattr(answered.parts[0], "call_id", None) == "call_1"


def test_raw_events_are_of_the_packages_types() -> None:
    names = [type(one).__name__ for one in client(_Server()).messages.create(**ASK, stream=True)]
    assert names[0] == "RawMessageStartEvent"
    assert names[-2:] == ["RawMessageDeltaEvent", "RawMessageStopEvent"]
    assert set(names[1:-2]) == {
        "RawContentBlockStartEvent",
        "RawContentBlockDeltaEvent",
        "RawContentBlockStopEvent",
    }


def test_a_failure_in_the_midst() -> None:
    events = [
        ReplyStart(id="m", model="x"),
        PartStart(choice=0, part=0, kind="text"),
        PartDelta(choice=0, part=0, text="a"),
        ReplyFailure(Failure(kind="overloaded", message="busy")),
    ]
    with pytest.raises(anthropic.APIStatusError, match="busy"):
        list(client(_Server(events)).messages.create(**ASK, stream=True))


def test_an_answer_without_usage() -> None:
    events = [
        ReplyStart(id="m", model="x"),
        PartStart(choice=0, part=0, kind="text"),
        PartDelta(choice=0, part=0, text="a"),
        PartEnd(choice=0, part=0),
        ChoiceEnd(choice=0, reason="stop"),
        ReplyEnd(),
    ]
    with client(_Server(events)).messages.stream(**ASK) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens == 0


def test_errors() -> None:
    with pytest.raises(anthropic.BadRequestError, match="max_tokens: -1 is too low"):
        client(_Server()).messages.create(**ASK | {"max_tokens": -1})


def test_counting() -> None:
    counted = client(_Server()).messages.count_tokens(model="m", messages=ASK["messages"])
    assert counted.input_tokens == 17


def test_betas_are_read_from_the_header() -> None:
    server = _Server()
    client(server).beta.messages.create(**ASK, betas=["files-api-2025-04-14"])
    assert server.calls[0].extra == {"betas": ["files-api-2025-04-14"]}


def test_what_the_package_writes_comes_out_of_the_provider_as_it_went_in() -> None:
    server = _Server()
    asked: dict[str, Any] = ASK | {
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "thinking": {"type": "disabled"},
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u"},
    }
    client(server).messages.create(**asked)
    written = json.loads(PROVIDER.write_call(server.calls[0], "m").body)
    content = [{"type": "text", "text": "hi"}]
    assert written == asked | {"messages": [{"role": "user", "content": content}]}


def _final(stream: bytes) -> Any:
    """What the package makes of a stream."""
    headers = {"content-type": "text/event-stream"}

    def answer(_request: Any) -> Any:
        return httpx.Response(200, content=stream, headers=headers)

    with client(answer).beta.messages.stream(**ASK) as events:
        return events.get_final_message().model_dump(warnings=False)


@pytest.mark.long
def test_recorded_streams_are_the_same_to_it_after_they_were_read_and_written() -> None:
    for exchange in streams():
        writer = CLIENT.stream_writer(CALL)
        events = read_stream(PROVIDER.stream_reader(CALL), exchange.body)
        written = _final(b"".join(writer.write(event) for event in events))
        raw = _final(exchange.body)
        # Counts that older streams left out are zeros, and how writes are split is told.
        for name, value in written["usage"].items():
            if raw["usage"][name] is None and value is not None:
                assert value == 0 or name in ("cache_creation", "output_tokens_details")
                raw["usage"][name] = value
        assert written == raw, exchange.at
