"""A model that calls a tool with nothing or null: every client gets an object, from every provider.

Models write `null` for a tool without parameters. As it stands, that is not an object: Ollama's
clients got it as text and no call at all, chat clients as the string "null".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from headrace.protocol.dialects import (
    anthropic,
    bedrock,
    cohere,
    gemini,
    mistral,
    ollama,
    openai_chat,
    openai_responses,
)
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.dialect import ClientSide, ReplySide
from headrace.protocol.neutral.event import Event, PartDelta, PartEnd
from headrace.protocol.neutral.part import ToolCall
from tests.protocol.dialects.anthropic.test_stream_reader import block, start, stop
from tests.protocol.dialects.bedrock import frames
from tests.protocol.dialects.cohere import samples as cohere_samples
from tests.protocol.dialects.mistral import samples as mistral_samples
from tests.protocol.dialects.openai_chat.samples import call_delta, sse
from tests.protocol.dialects.openai_responses import samples as responses_samples
from tests.protocol.neutral.streams import assert_grammar, cut_at, read_stream

CALL = ChatCall(dialect="openai-chat", model="m", messages=())
CHAT = openai_chat.OpenAIChatProvider(openai_chat.PRESETS["generic"])


def _chat_body(arguments: Any) -> bytes:
    function = {"name": "f", "arguments": arguments}
    message = {"role": "assistant", "tool_calls": [{"id": "c", "function": function}]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return json.dumps({"id": "r", "model": "m", "choices": [choice]}).encode()


def _chat_stream(pieces: tuple[str, ...]) -> bytes:
    first = {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}
    rest = [call_delta({"index": 0, "function": {"arguments": piece}}) for piece in pieces]
    return sse(call_delta(first), *rest, call_delta(finish="tool_calls"))


def _function_item(arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": "f", "arguments": arguments}


def _responses_body(arguments: Any) -> bytes:
    response = responses_samples.response(output=[_function_item(arguments)])
    return json.dumps(response).encode()


def _responses_stream(pieces: tuple[str, ...]) -> bytes:
    item = _function_item("".join(pieces))
    return responses_samples.sse(
        {"type": "response.created", "response": responses_samples.response(status="in_progress")},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "arguments": ""},
        },
        *(
            {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": piece}
            for piece in pieces
        ),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": responses_samples.response(output=[item])},
    )


def _anthropic_body(arguments: Any) -> bytes:
    block = {"type": "tool_use", "id": "c", "name": "f", "input": arguments or None}
    return json.dumps({"id": "r", "content": [block], "stop_reason": "tool_use"}).encode()


def _anthropic_stream(pieces: tuple[str, ...]) -> bytes:
    first = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return start() + block(0, first, *deltas) + stop("tool_use")


def _cohere_call(arguments: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


def _cohere_body(arguments: Any) -> bytes:
    message = {"role": "assistant", "tool_calls": [_cohere_call(arguments)]}
    return json.dumps({"id": "r", "message": message, "finish_reason": "TOOL_CALL"}).encode()


def _cohere_stream(pieces: tuple[str, ...]) -> bytes:
    def piece_of(text: str) -> dict[str, Any]:
        return {"function": {"arguments": text}}

    delta, end = cohere_samples.delta, cohere_samples.message_end
    return cohere_samples.stream(
        {"type": "message-start", "id": "r"},
        delta("tool-call-start", 0, tool_calls=_cohere_call("")),
        *(delta("tool-call-delta", 0, tool_calls=piece_of(piece)) for piece in pieces),
        {"type": "tool-call-end", "index": 0},
        end("TOOL_CALL"),
    )


def _mistral_stream(pieces: tuple[str, ...]) -> bytes:
    chunks = [
        mistral_samples.chunk(
            {"tool_calls": [{"id": "c", "index": 0, "function": {"name": "f", "arguments": piece}}]}
        )
        for piece in ("", *pieces)
    ]
    end = mistral_samples.chunk({"content": ""}, "tool_calls")
    return mistral_samples.stream(*chunks, end) + b"data: [DONE]\n\n"


def _bedrock_body(arguments: Any) -> bytes:
    use = {"toolUseId": "c", "name": "f", "input": arguments or None}
    message = {"role": "assistant", "content": [{"toolUse": use}]}
    return json.dumps({"output": {"message": message}, "stopReason": "tool_use"}).encode()


def _bedrock_stream(pieces: tuple[str, ...]) -> bytes:
    return frames.stream(
        frames.START,
        frames.start(0, {"toolUse": {"toolUseId": "c", "name": "f"}}),
        *(frames.delta(0, {"toolUse": {"input": piece}}) for piece in pieces),
        frames.stop(0),
        *frames.ended("tool_use"),
    )


def _ollama_body(arguments: Any) -> bytes:
    function = {"name": "f", "arguments": arguments}
    message = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
    return json.dumps({"model": "m", "message": message, "done": True}).encode()


def _gemini_body(arguments: Any) -> bytes:
    part = {"functionCall": {"name": "f", "args": arguments or None}}
    candidate = {"content": {"parts": [part]}, "finishReason": "STOP"}
    return json.dumps({"candidates": [candidate]}).encode()


class Provider(NamedTuple):
    """A provider's dialect and how it writes the call of a tool."""

    side: ReplySide
    body: Callable[[Any], bytes]
    stream: Callable[[tuple[str, ...]], bytes] | None = None
    """None where arguments are objects and come whole."""
    takes_text: bool = True
    """Whether a whole reply has the arguments as text."""


PROVIDERS = {
    "openai-chat": Provider(CHAT, _chat_body, _chat_stream),
    "openai-responses": Provider(openai_responses.PROVIDER, _responses_body, _responses_stream),
    "anthropic": Provider(anthropic.PROVIDER, _anthropic_body, _anthropic_stream, False),
    "cohere": Provider(cohere.PROVIDER, _cohere_body, _cohere_stream),
    "mistral": Provider(mistral.PROVIDER, _chat_body, _mistral_stream),
    "bedrock": Provider(bedrock.PROVIDER, _bedrock_body, _bedrock_stream, False),
    "ollama": Provider(ollama.PROVIDER, _ollama_body),
    "gemini": Provider(gemini.PROVIDER, _gemini_body, None, False),
}
STREAMING = {name: provider for name, provider in PROVIDERS.items() if provider.stream}
CLIENTS: dict[str, ClientSide] = {
    "openai-chat": openai_chat.CLIENT,
    "openai-responses": openai_responses.CLIENT,
    "anthropic": anthropic.CLIENT,
    "ollama": ollama.CLIENT,
}
NOTHING = ((), ("null",), ("nu", "ll"), ("", " null", " "))


def written(events: list[Event]) -> str:
    """The arguments as the events have them."""
    assert sum(isinstance(event, PartEnd) for event in events) == 1
    return "".join(event.text for event in events if isinstance(event, PartDelta))


def seen(name: str, body: dict[str, Any]) -> Any:
    """The arguments that a client reads out of a body."""
    if name == "openai-chat":
        return body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    if name == "openai-responses":
        return body["output"][0]["arguments"]
    if name == "anthropic":
        return body["content"][0]["input"]
    return body["message"]["tool_calls"][0]["function"]["arguments"]


def streamed(name: str, out: bytes) -> Any:
    """The arguments that a client reads out of a stream."""
    lines = [line.removeprefix(b"data: ") for line in out.splitlines()]
    told = [json.loads(line) for line in lines if line.startswith(b"{")]
    if name == "ollama":
        assert all(line["message"]["content"] == "" for line in told)
        (call,) = [call for line in told for call in line["message"].get("tool_calls", ())]
        return call["function"]["arguments"]
    if name == "openai-responses":
        (done,) = [one for one in told if one["type"].endswith("arguments.done")]
        return done["arguments"]
    if name == "anthropic":
        deltas = [one["delta"] for one in told if one["type"] == "content_block_delta"]
        return "".join(delta["partial_json"] for delta in deltas)
    deltas = [choice["delta"] for chunk in told for choice in chunk["choices"]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    return "".join(call["function"]["arguments"] for call in calls)


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_client_gets_an_object(name: str) -> None:
    provider = PROVIDERS[name]
    for arguments in (None, "null", "") if provider.takes_text else (None,):
        reply = provider.side.read_reply(provider.body(arguments))
        (call,) = reply.choices[0].parts
        assert isinstance(call, ToolCall)
        assert call.arguments == "{}"
        for client, side in CLIENTS.items():
            body = json.loads(side.write_reply(reply, CALL))
            assert seen(client, body) in ("{}", {}), client


@pytest.mark.parametrize("name", STREAMING)
@pytest.mark.parametrize("pieces", NOTHING)
def test_every_stream_gives_an_object(name: str, pieces: tuple[str, ...]) -> None:
    provider = STREAMING[name]
    assert provider.stream is not None
    body = provider.stream(pieces)
    events = read_stream(provider.side.stream_reader(CALL), body)
    assert_grammar(events)
    assert written(events) == "{}"
    cuts = cut_at(body, range(0, len(body), 3))
    assert read_stream(provider.side.stream_reader(CALL), *cuts) == events
    for client, side in CLIENTS.items():
        writer = side.stream_writer(CALL)
        out = b"".join(map(writer.write, events))
        assert streamed(client, out) in ("{}", {}), client


@pytest.mark.parametrize("name", STREAMING)
def test_arguments_that_begin_as_null_does_stay_whole(name: str) -> None:
    provider = STREAMING[name]
    assert provider.stream is not None
    for pieces in (("n", "ope"), ("nul", "", "l", "s"), (" ", '{"a"', ": null}")):
        events = read_stream(provider.side.stream_reader(CALL), provider.stream(pieces))
        assert written(events) == "".join(pieces)
        (call,) = collected(name, events).choices[0].parts
        assert isinstance(call, ToolCall)
        assert call.arguments == "".join(pieces)
