"""Calls, streams and recorded exchanges that several tests use."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from headrace.protocol.dialects.cohere import PROVIDER
from headrace.protocol.neutral.call import ChatCall, Message, Tool
from headrace.protocol.neutral.part import Text
from tests.protocol.neutral.cassettes import Exchange, exchanges

WEATHER = Tool(
    name="get_weather",
    description="Get weather for a city",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
TIME = Tool(name="get_time", parameters={"type": "object", "properties": {}})


def call(dialect: str = "openai-chat", **fields: Any) -> ChatCall:
    """A call of one turn of a client of another dialect."""
    given = {"messages": (Message(role="user", parts=(Text(text="Hi"),)),), "model": "m"} | fields
    return ChatCall(dialect=dialect, **given)


def written(asked: ChatCall) -> dict[str, Any]:
    """The body that is sent for it."""
    told: dict[str, Any] = json.loads(PROVIDER.write_call(asked, "command-a").body)
    return told


def reply(**fields: Any) -> bytes:
    """A reply with these fields in it."""
    given = {
        "id": "r1",
        "finish_reason": "COMPLETE",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
        "usage": {"billed_units": {"input_tokens": 3, "output_tokens": 1}},
    } | fields
    return json.dumps(given).encode()


def stream(*events: dict[str, Any]) -> bytes:
    """A stream of these events."""
    lines = [f"event: {one.get('type', '')}\ndata: {json.dumps(one)}\n\n" for one in events]
    return "".join(lines).encode()


def delta(kind: str, index: int | None = None, **message: Any) -> dict[str, Any]:
    """An event of a stream whose message has these fields."""
    place = {} if index is None else {"index": index}
    return {"type": kind, **place, "delta": {"message": message}}


def message_end(reason: str = "COMPLETE", **fields: Any) -> dict[str, Any]:
    """The last event of a stream."""
    return {"type": "message-end", "delta": {"finish_reason": reason, **fields}}


@cache
def recorded() -> tuple[Exchange, ...]:
    """All exchanges of version 2; version 1 (/v1/chat) is another API and left out."""
    found = [
        *exchanges("pydantic-ai.tar.gz", "cassettes/test_cohere/", "api.cohere.com"),
        *exchanges("pydantic-ai.tar.gz", "-cohere].yaml", "api.cohere.com"),
        *exchanges("pydantic-ai.tar.gz", "[cohere].yaml", "api.cohere.com"),
        *exchanges("pydantic-ai.tar.gz", "test_embeddings/TestCohere", "api.cohere.com"),
        *exchanges("openllmetry.tar.gz", "opentelemetry-instrumentation-cohere/", "api.cohere"),
        *exchanges("openllmetry.tar.gz", "langchain/tests/cassettes/test_chains/", "api.cohere"),
        *exchanges("openllmetry.tar.gz", "cassettes/test_documents_chains/", "api.cohere"),
    ]
    return tuple(one for one in found if one.path in ("/v2/chat", "/v2/embed"))


def answers() -> list[Exchange]:
    """Whole answers of chats."""
    return [one for one in _chats() if not is_stream(one)]


def streams() -> list[Exchange]:
    """Streamed answers of chats."""
    return [one for one in _chats() if is_stream(one)]


def embeddings() -> list[Exchange]:
    """Answered requests for embeddings."""
    return [one for one in recorded() if one.path == "/v2/embed" and one.status == 200]


def errors() -> list[Exchange]:
    """Replies that are no answers."""
    return [one for one in recorded() if one.status >= 400]


def is_stream(exchange: Exchange) -> bool:
    """By what the client asked for: some recordings lack the reply's content type."""
    return json.loads(exchange.request).get("stream") is True


def _chats() -> list[Exchange]:
    return [one for one in recorded() if one.path == "/v2/chat" and one.status == 200]
