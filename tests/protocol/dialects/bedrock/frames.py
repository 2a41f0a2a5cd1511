"""Streams of ConverseStream, made for tests."""

from __future__ import annotations

import json
from typing import Any

from headrace.protocol.aws.event_stream import write_frame

START = ("messageStart", {"role": "assistant"})
USAGE = {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}


def event(name: str, fields: Any) -> bytes:
    """One event's frame; bytes go out as they are."""
    payload = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return write_frame(
        {
            ":event-type": name,
            ":content-type": "application/json",
            ":message-type": "event",
        },
        payload,
    )


def exception(name: str, fields: dict[str, Any]) -> bytes:
    """A frame that ends a stream."""
    headers = {":exception-type": name, ":message-type": "exception"}
    return write_frame(headers, json.dumps(fields).encode())


def delta(index: int, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A contentBlockDelta."""
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": value}


def start(index: int, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A contentBlockStart."""
    return "contentBlockStart", {"contentBlockIndex": index, "start": value}


def stop(index: int) -> tuple[str, dict[str, Any]]:
    """A contentBlockStop."""
    return "contentBlockStop", {"contentBlockIndex": index}


def ended(reason: str = "end_turn", **metadata: Any) -> list[tuple[str, dict[str, Any]]]:
    """What comes after the content."""
    return [
        ("messageStop", {"stopReason": reason}),
        ("metadata", {"usage": USAGE, "metrics": {"latencyMs": 5}, **metadata}),
    ]


def stream(*events: tuple[str, Any]) -> bytes:
    """Events one after the other."""
    return b"".join(event(name, fields) for name, fields in events)
