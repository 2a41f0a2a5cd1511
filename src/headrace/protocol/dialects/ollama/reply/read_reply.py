"""The reader of whole answers, and of one object of an answer, which may be a line of a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.protocol.dialects.ollama.images import media
from headrace.protocol.dialects.ollama.reply.failures import line_failure
from headrace.protocol.dialects.ollama.reply.usage import read_usage
from headrace.protocol.dialects.ollama.timestamp import unix_s
from headrace.protocol.dialects.ollama.tool_ids import call_id
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.part import Media, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice, Finish

_NONE = msgspec.Raw(b"{}")
# Told where the reply is read, or the same on each line.
_READ = {
    "model",
    "created_at",
    "message",
    "done",
    "done_reason",
    "prompt_eval_count",
    "eval_count",
    "logprobs",
    "error",
    "remote_model",
    "remote_host",
}


class Function(msgspec.Struct):
    """A called function. Arguments are an object; some servers write its JSON as a string."""

    name: str
    arguments: msgspec.Raw = _NONE


class Call(msgspec.Struct):
    """A tool call; older versions give no id."""

    function: Function
    id: str | None = None


class Message(msgspec.Struct):
    """The model's output in this chunk."""

    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[Call] | None = None


class Chunk(msgspec.Struct):
    """A chunk of an answer."""

    model: str | None = None
    created_at: str | None = None
    message: Message | None = None
    done: bool | None = None
    done_reason: str | None = None
    logprobs: list[dict[str, Any]] | None = None
    remote_model: str | None = None
    """With remote_host, where a cloud model runs."""
    remote_host: str | None = None
    error: Any = None
    """Replaces all other fields."""

    def origin(self) -> dict[str, Any]:
        """The extra of ReplyStart and ChatReply."""
        own = {"remote_model": self.remote_model, "remote_host": self.remote_host}
        own = {name: value for name, value in own.items() if value is not None}
        return {"ollama": own} if own else {}


_CHUNK = msgspec.json.Decoder(Chunk)


def read_chunk(body: bytes) -> Chunk:
    """Raises DamagedReplyError, saying where."""
    try:
        return _CHUNK.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedReplyError(f"not an Ollama chunk: {error}") from None
    except RecursionError:
        raise DamagedReplyError("a chunk is nested too deeply") from None


def read_done(body: bytes) -> dict[str, Any]:
    """All fields of a chunk that `read_chunk` has read."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedReplyError(f"not an Ollama chunk: {error}") from None
    return found if isinstance(found, dict) else {}


def done_extra(done: dict[str, Any]) -> dict[str, Any]:
    """Times and what has no neutral form, as a choice's extra: under the dialect's name."""
    own = {name: value for name, value in done.items() if name not in _READ and value is not None}
    reason = done.get("done_reason")
    if reason not in (None, "stop", "length"):
        own["done_reason"] = reason
    return {"ollama": own} if own else {}


def finish(reason: str | None, has_calls: bool) -> Finish:
    """Ollama ends with "stop" for tool calls too. "load" and "unload" are answers without text."""
    if reason == "length":
        return "length"
    return "tool_calls" if has_calls else "stop"


def parts(message: Message | None, calls: int) -> Iterator[Text | Thinking | Media | ToolCall]:
    """The parts of a chunk. calls: the number of tool calls in earlier chunks."""
    if message is None:
        return
    if message.thinking:
        yield Thinking(text=message.thinking)
    if message.content:
        yield Text(text=message.content)
    for data in message.images or ():
        yield media(data)
    for number, call in enumerate(message.tool_calls or (), calls):
        name = call.function.name
        if not name:
            raise DamagedReplyError("a tool call has no name")
        yield ToolCall(
            id=call.id or call_id(0, number),
            name=name,
            arguments=_arguments(call.function.arguments),
        )


def _arguments(raw: msgspec.Raw) -> str:
    try:
        text = bytes(raw).decode()
        if text.startswith('"'):
            return msgspec.json.decode(text, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedReplyError(f"arguments of a tool call are damaged: {error}") from None
    return "{}" if text == "null" else text


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
    has_calls = any(isinstance(part, ToolCall) for part in found)
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
