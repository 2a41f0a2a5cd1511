"""The writer of replies, and of bodies of errors."""

from __future__ import annotations

import msgspec

from headrace.protocol.dialects.ollama.reply.usage import NO_DURATIONS, Durations
from headrace.protocol.dialects.ollama.reply.write_chunk import Ending, Head, own_extra, write_parts
from headrace.protocol.dialects.ollama.timestamp import rfc3339
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply, Choice


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
