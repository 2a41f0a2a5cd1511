"""Short values that several tests use."""

from __future__ import annotations

import json
from typing import Any

from headrace.protocol.dialects.openai_responses import CLIENT, PROVIDER
from headrace.protocol.neutral.call import ChatCall, Message
from headrace.protocol.neutral.event import Event
from headrace.protocol.neutral.part import Part, Text

PATH = "/v1/responses"


def read(**body: Any) -> ChatCall:
    """A client's request as it is read; model and input are there if they are not given."""
    whole = {"model": "m", "input": "Hi", **body}
    return CLIENT.read_call(json.dumps(whole).encode(), PATH, {})


def written(call: ChatCall) -> dict[str, Any]:
    """What a provider of this dialect is sent for `call`."""
    body: dict[str, Any] = json.loads(PROVIDER.write_call(call, "m").body)
    return body


def foreign(*messages: Message, **fields: Any) -> ChatCall:
    """A call that a client of another dialect made."""
    turns = messages or (Message(role="user", parts=(Text(text="Hi"),)),)
    return ChatCall(dialect="anthropic", model="m", messages=turns, **fields)


def said(*parts: Part) -> Message:
    """A turn of the model."""
    return Message(role="assistant", parts=parts)


def told(raw: bytes) -> list[dict[str, Any]]:
    """The events of a written stream, whose names must be their types."""
    events = []
    for block in raw.decode().split("\n\n"):
        if not block or block.startswith(":"):
            continue
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    return events


def streamed(call: ChatCall, events: list[Event]) -> list[dict[str, Any]]:
    """What a client reads of `events`."""
    writer = CLIENT.stream_writer(call)
    return told(b"".join([writer.write(event) for event in events]))


def sse(*events: dict[str, Any]) -> bytes:
    """A provider's stream."""
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events)


def response(**fields: Any) -> dict[str, Any]:
    """A provider's response object."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1700000000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-5",
        "output": [],
        **fields,
    }


def message(text: str, id: str = "msg_1", **fields: Any) -> dict[str, Any]:
    """An item of a provider's output."""
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    return {
        "id": id,
        "type": "message",
        "status": "completed",
        "content": [part],
        "role": "assistant",
        **fields,
    }


def function_call(name: str, arguments: str, id: str = "fc_1") -> dict[str, Any]:
    """An item of a provider's output."""
    return {
        "id": id,
        "type": "function_call",
        "status": "completed",
        "arguments": arguments,
        "call_id": f"call_{id}",
        "name": name,
    }
