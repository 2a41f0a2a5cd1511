"""The reader of whole answers."""

from __future__ import annotations

from headrace.protocol.dialects.ollama.reply.chunk import (
    done_extra,
    finish,
    parts,
    read_chunk,
    read_done,
)
from headrace.protocol.dialects.ollama.reply.failures import line_failure
from headrace.protocol.dialects.ollama.reply.usage import read_usage
from headrace.protocol.dialects.ollama.timestamp import unix_s
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice


def read_reply(body: bytes) -> ChatReply:
    """Raises DamagedReplyError if it is not an answer, or one that is not done."""
    chunk = read_chunk(body)
    if chunk.error is not None:
        failure = line_failure(chunk.error)
        raise DamagedReplyError(
            f"the reply is an error without an answer: {failure.message}", failure
        )
    if chunk.done is not True:
        raise DamagedReplyError("the answer is not done")
    done = read_done(body)
    found = tuple(parts(chunk.message, 0))
    has_calls = any(isinstance(one, ToolCall) for one in found)
    choice = Choice(
        parts=found,
        finish=finish(chunk.done_reason, has_calls),
        logprobs=chunk.logprobs or None,
        extra=done_extra(done),
    )
    return ChatReply(
        dialect="ollama",
        id="",
        model=chunk.model or "",
        choices=(choice,),
        usage=read_usage(done),
        created_s=unix_s(chunk.created_at),
        extra=chunk.origin(),
    )
