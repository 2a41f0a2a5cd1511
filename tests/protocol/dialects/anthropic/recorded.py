"""Recorded exchanges with Anthropic, and what their raw JSON says without the code under test."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tests.protocol.neutral.cassettes import Exchange, exchanges

HOST = "api.anthropic.com"

# What the paths of cassettes hold; other vendors' are among them.
FOLDERS = {
    "pydantic-ai.tar.gz": ("anthropic", "test_tool_availability_portability", "test_tool_search/"),
    "openllmetry.tar.gz": (
        "opentelemetry-instrumentation-anthropic",
        "opentelemetry-instrumentation-langchain/tests/cassettes/test_tool_calls",
    ),
}


@cache
def recorded() -> tuple[Exchange, ...]:
    """All exchanges of the Messages API; skips the test without the assets."""
    found = {
        one.at: one
        for archive, folders in FOLDERS.items()
        for folder in folders
        for one in exchanges(archive, folder, HOST)
    }
    return tuple(one for one in found.values() if one.path.startswith("/v1/messages"))


def messages() -> list[Exchange]:
    """Whole answers."""
    return [one for one in recorded() if _is_answer(one) and not one.streamed]


def streams() -> list[Exchange]:
    """Streamed answers."""
    return [one for one in recorded() if _is_answer(one) and one.streamed]


def counts() -> list[Exchange]:
    """Numbers of tokens."""
    return [one for one in recorded() if one.status == 200 and _counts(one)]


def errors() -> list[Exchange]:
    """Replies that are none."""
    return [one for one in recorded() if one.status >= 400]


def _counts(exchange: Exchange) -> bool:
    return "count_tokens" in exchange.path


def _is_answer(exchange: Exchange) -> bool:
    return exchange.status == 200 and not _counts(exchange)


def stream_events(body: bytes) -> list[dict[str, Any]]:
    """The JSON of a stream's data lines."""
    lines = body.decode().replace("\r\n", "\n").split("\n")
    return [json.loads(line[5:]) for line in lines if line.startswith("data:")]


def assembled(body: bytes) -> dict[str, Any]:
    """The message that a stream tells, put together as Anthropic's own client does."""
    message: dict[str, Any] = {}
    partial: dict[int, str] = {}
    for event in stream_events(body):
        kind = event["type"]
        if kind == "message_start":
            message = event["message"]
        elif kind == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
        elif kind == "content_block_delta":
            _grow(message["content"][event["index"]], event, partial)
        elif kind == "content_block_stop":
            if written := partial.get(event["index"]):
                message["content"][event["index"]]["input"] = json.loads(written)
        elif kind == "message_delta":
            message |= event["delta"]
            message["usage"] |= {k: v for k, v in event["usage"].items() if v is not None}
            if "context_management" in event:
                message["context_management"] = event["context_management"]
    return message


def _grow(block: dict[str, Any], event: dict[str, Any], partial: dict[int, str]) -> None:
    delta = event["delta"]
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        case "input_json_delta":
            index = event["index"]
            partial[index] = partial.get(index, "") + delta["partial_json"]
        case other:
            raise AssertionError(other)


def plain(value: Any) -> Any:
    """JSON without nulls, empty lists of citations, and words that say what is so anyway."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: plain(one)
        for key, one in value.items()
        if one is not None and not (key == "citations" and one == [])
    }
