"""The contents of a chat completion, piece by piece, as the playground shows it.

Of fields that providers add, only those that people look at are read; missing ones, and those of
another type, are skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from headrace.protocol.sse import DONE_DATA, SSEReader


class Said(NamedTuple):
    """A piece of an answer."""

    kind: Literal["text", "reasoning", "tool_call"] | None = None
    text: str = ""
    failure: str = ""
    """Why nothing more comes; "" if nothing is wrong."""


async def said_in_stream(pieces: AsyncIterator[bytes]) -> AsyncIterator[Said]:
    """The pieces in a stream's events. Raises ValueError if it is not such a stream."""
    reader = SSEReader()
    async for piece in pieces:
        for event in reader.feed(piece):
            if event.data == DONE_DATA:
                continue
            for said in _of_message(msgspec.json.decode(event.data), "delta"):
                yield said


def said_whole(body: bytes) -> Iterator[Said]:
    """The pieces of an answer without a stream, or of an error. Raises ValueError if it is not
    JSON."""
    yield from _of_message(msgspec.json.decode(body), "message")


def _of_message(found: Any, name: str) -> Iterator[Said]:
    if not isinstance(found, dict):
        return
    error = found.get("error")
    if error:
        message = error.get("message") if isinstance(error, dict) else None
        yield Said(failure=str(message or error))
        return
    choices = found.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        part = choice.get(name) if isinstance(choice, dict) else None
        if isinstance(part, dict):
            yield from _of_part(part)


def _of_part(part: dict[str, Any]) -> Iterator[Said]:
    thought = part.get("reasoning_content") or part.get("reasoning")
    if isinstance(thought, str) and thought:
        yield Said("reasoning", thought)
    for name in ("content", "refusal"):
        text = part.get(name)
        if isinstance(text, str) and text:
            yield Said("text", text)
    calls = part.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            words = [str(function.get(one) or "") for one in ("name", "arguments")]
            yield Said("tool_call", " ".join(filter(None, words)))
