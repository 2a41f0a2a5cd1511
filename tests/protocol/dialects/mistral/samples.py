"""Calls, streams and recorded exchanges that several tests use."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from headrace.protocol.dialects.mistral import PROVIDER
from headrace.protocol.neutral.call import ChatCall, Message, Tool
from headrace.protocol.neutral.part import Text
from tests.protocol.neutral.cassettes import Exchange, exchanges

HOST = "api.mistral.ai"
DONE = b"data: [DONE]\n\n"
WEATHER = Tool(
    name="get_weather",
    description="Get weather for a city",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
TIME = Tool(name="get_time")


def call(dialect: str = "openai-chat", **fields: Any) -> ChatCall:
    """A call of one turn of a client of another dialect."""
    given = {"messages": (Message(role="user", parts=(Text(text="Hi"),)),), "model": "m"} | fields
    return ChatCall(dialect=dialect, **given)


def written(asked: ChatCall) -> dict[str, Any]:
    """The body that is sent for it."""
    told: dict[str, Any] = json.loads(PROVIDER.write_call(asked, "mistral-large-latest").body)
    return told


def reply(*messages: dict[str, Any], reason: str = "stop", **fields: Any) -> bytes:
    """A reply with a choice for each message."""
    choices = [
        {"index": index, "message": one, "finish_reason": reason}
        for index, one in enumerate(messages)
    ]
    given = {"id": "r1", "object": "chat.completion", "created": 5, "model": "m"}
    return json.dumps(given | {"choices": choices} | fields).encode()


def chunk(
    delta: dict[str, Any], reason: str | None = None, index: int = 0, **fields: Any
) -> dict[str, Any]:
    """A chunk of a stream."""
    choice = {"index": index, "delta": delta, "finish_reason": reason}
    given = {"id": "r1", "object": "chat.completion.chunk", "created": 5, "model": "m"}
    return given | {"choices": [choice]} | fields


def stream(*chunks: dict[str, Any]) -> bytes:
    """A stream of these chunks, without its end mark."""
    return "".join(f"data: {json.dumps(one)}\n\n" for one in chunks).encode()


@cache
def recorded() -> tuple[Exchange, ...]:
    """All exchanges that there are."""
    return (
        *exchanges("pydantic-ai.tar.gz", "cassettes/test_mistral/", HOST),
        *exchanges("pydantic-ai.tar.gz", "-mistral].yaml", HOST),
        *exchanges("pydantic-ai.tar.gz", "[mistral].yaml", HOST),
        *exchanges("pydantic-ai.tar.gz", "_contract[mistral-", HOST),
        *exchanges("openllmetry.tar.gz", "opentelemetry-instrumentation-mistralai/", HOST),
    )


def answers() -> list[Exchange]:
    """Whole answers of chats."""
    return [one for one in _chats() if not is_stream(one)]


def streams() -> list[Exchange]:
    """Streamed answers of chats."""
    return [one for one in _chats() if is_stream(one)]


def embeddings() -> list[Exchange]:
    """Answered requests for embeddings."""
    return [one for one in recorded() if one.path == "/v1/embeddings" and one.status == 200]


def errors() -> list[Exchange]:
    """Replies that are no answers."""
    return [one for one in recorded() if one.status >= 400]


def is_stream(exchange: Exchange) -> bool:
    """By what the client asked for: some recordings lack the reply's content type."""
    return json.loads(exchange.request).get("stream") is True


def _chats() -> list[Exchange]:
    return [one for one in recorded() if one.path == "/v1/chat/completions" and one.status == 200]
