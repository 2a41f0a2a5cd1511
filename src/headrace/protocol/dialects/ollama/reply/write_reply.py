"""The writer of whole answers and of errors, and of the objects that are lines of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.protocol.dialects.ollama.reply.usage import (
    NO_DURATIONS,
    Durations,
    write_durations,
    write_usage,
)
from headrace.protocol.dialects.ollama.request.write_messages import arguments_object
from headrace.protocol.dialects.ollama.timestamp import rfc3339
from headrace.protocol.dialects.openai_chat.thoughts import write_details
from headrace.protocol.neutral import carried_id
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Media, Part, Refusal, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice, Finish
from headrace.protocol.neutral.usage import TokenUsage
from headrace.protocol.sse import one_line

_REASONS: dict[Finish, str] = {"tool_calls": "stop", "pause": "stop"}
# An answer that is none: it has no times and no counts.
_LOADED = ("load", "unload")


class Head(NamedTuple):
    """The beginning of all chunks of an answer."""

    model: str
    created_at: str
    """RFC 3339."""
    origin: Mapping[str, Any]

    def chunk(self, message: dict[str, Any], **more: object) -> dict[str, Any]:
        """One chunk as an object."""
        head = {"model": self.model, **self.origin} | {"created_at": self.created_at}
        return head | {"message": {"role": "assistant", "content": ""} | message} | more


class Ending(NamedTuple):
    """The end of an answer."""

    finish: Finish | None
    usage: TokenUsage | None
    durations: Durations
    extra: Mapping[str, Any]
    """That of the choice that ended."""

    def fields(self) -> dict[str, Any]:
        """The fields of a chunk that is done. content_filter is written as it is: Ollama has no
        word for it."""
        own = own_extra(self.extra)
        reason = own.pop("done_reason", None)
        if not isinstance(reason, str):
            finish = self.finish or "stop"
            reason = _REASONS.get(finish, finish)
        fields: dict[str, Any] = {"done": True, "done_reason": reason}
        if reason in _LOADED:
            return fields
        counts = write_usage(self.usage)
        times = write_durations(self.durations, own)
        return fields | counts | times | {n: v for n, v in own.items() if n not in times}


def own_extra(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an extra that this dialect's readers wrote; those of other dialects are
    dropped."""
    own = extra.get("ollama")
    return dict(own) if isinstance(own, dict) else {}


def write_parts(parts: Sequence[Part]) -> dict[str, Any]:
    """The message that holds `parts`; what Ollama has no words for is left out."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Text | Refusal):
            texts.append(part.text)
        elif isinstance(part, ToolCall):
            call = write_tool_call(part, len(calls))
            if call is None:
                texts.append(unparsed(part))
            else:
                calls.append(call)
    thoughts = [thought for thought in parts if isinstance(thought, Thinking)]
    message: dict[str, Any] = {"content": "".join(texts)}
    thinking = "".join(thought.text for thought in thoughts)
    if thinking:
        message["thinking"] = thinking
    images = [image.data for image in parts if isinstance(image, Media) and image.kind == "image"]
    if any(images):
        message["images"] = [data for data in images if data]
    if calls:
        message["tool_calls"] = calls
    if any(thought.signature is not None for thought in thoughts):
        # Ollama has no field for a signature. A client that gives messages back as they came
        # gives this one back too.
        message["reasoning_details"] = write_details(thoughts)
    return message


def write_tool_call(part: ToolCall, number: int) -> dict[str, Any] | None:
    """The tool call; None if its arguments are not a JSON object, the only form that Ollama's
    clients understand.

    The id holds the call's signature, if it has one.
    """
    arguments = arguments_object(part.arguments)
    if arguments is None:
        return None
    function = {"index": number, "name": part.name, "arguments": arguments}
    return {"id": carried_id.pack(part.id, part.signature), "function": function}


def unparsed(part: ToolCall) -> str:
    """A tool call as text: what Ollama itself gives for one that it cannot read."""
    name = msgspec.json.encode(part.name).decode()
    return f'{{"name": {name}, "arguments": {part.arguments}}}'


def line(chunk: dict[str, Any]) -> bytes:
    """A line of a stream. No client takes anything within for its end."""
    return one_line(msgspec.json.encode(chunk)) + b"\n"


def write_reply(
    reply: ChatReply, call: ChatCall, created_at: str = "", durations: Durations = NO_DURATIONS
) -> bytes:
    """Ollama's answers are one choice: the first. created_at: "" for the one the reply tells."""
    choice = reply.choices[0] if reply.choices else Choice()
    head = Head(
        reply.model or call.model, created_at or rfc3339(reply.created_s), own_extra(reply.extra)
    )
    ending = Ending(choice.finish, reply.usage, durations, choice.extra)
    chunk = head.chunk(write_parts(choice.parts), **ending.fields())
    if choice.logprobs:
        chunk["logprobs"] = choice.logprobs
    return msgspec.json.encode(chunk)


def write_failure(failure: Failure) -> bytes:
    """Ollama's errors are a text; the status tells the rest."""
    return msgspec.json.encode({"error": failure.message})
