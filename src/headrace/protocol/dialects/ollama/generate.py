"""POST /api/generate: answers as those of a chat, with `response` in place of a message."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.ollama.client import OllamaClient, TimedWriter
from headrace.protocol.dialects.ollama.reply.failures import read_failure
from headrace.protocol.dialects.ollama.reply.read_reply import read_reply
from headrace.protocol.dialects.ollama.reply.stream_reader import LineReader, OllamaStreamReader
from headrace.protocol.dialects.ollama.reply.usage import Durations
from headrace.protocol.dialects.ollama.reply.write_reply import line
from headrace.protocol.dialects.ollama.request.read_generate import read_generate
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.event import Event, ReplyFailure
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.reply import ChatReply

GENERATE = "ollama-generate"


class OllamaGenerateClient(OllamaClient):
    """A ClientSide; see `OllamaClient`."""

    name = GENERATE

    def read_call(self, body: bytes, path: str, headers: Headers) -> ChatCall:
        """A body of POST /api/generate; see `load` for one without a prompt."""
        return read_generate(body)

    def write_reply(self, reply: ChatReply, call: ChatCall) -> bytes:
        """The first choice: Ollama's answers are one."""
        return msgspec.json.encode(_to_generate(super().write_reply(reply, call)))

    def stream_writer(self, call: ChatCall) -> TimedWriter:
        """A writer of lines."""
        return GenerateWriter(super().stream_writer(call))


class GenerateReplies:
    """A `ReplySide` for servers that are asked at /api/generate."""

    name = GENERATE

    def read_reply(self, body: bytes) -> ChatReply:
        """Raises DamagedReplyError if it is none."""
        return read_reply(_to_chat(body))

    def stream_reader(self, call: ChatCall) -> GenerateStreamReader:
        """A reader of lines."""
        return GenerateStreamReader()

    def read_failure(self, status: int, headers: Headers, body: bytes) -> Failure:
        """Any body at all."""
        return read_failure(status, headers, body)


class GenerateStreamReader:
    """A reader of one answer."""

    def __init__(self) -> None:
        self._lines = LineReader()
        self._chat = OllamaStreamReader()
        self._is_over = False

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`."""
        events: list[Event] = []
        for chunk in self._lines.feed(piece):
            events += self._chat.feed(_to_chat(chunk) + b"\n")
        if self._lines.too_long and not self._is_over:
            self._is_over = True
            message = f"a line of the stream exceeds {self._lines.max_line_bytes} bytes"
            events.append(ReplyFailure(Failure(kind="damaged", message=message)))
        return events

    def end(self) -> list[Event]:
        """After the last byte; a last line needs no line end."""
        if self._is_over:
            return []
        events: list[Event] = []
        for chunk in self._lines.end():
            events += self._chat.feed(_to_chat(chunk) + b"\n")
        return events + self._chat.end()


class GenerateWriter:
    """A writer of one answer."""

    def __init__(self, chat: TimedWriter) -> None:
        self._chat = chat

    @property
    def durations(self) -> Durations:
        """Those of the last line, until it is written."""
        return self._chat.durations

    @durations.setter
    def durations(self, durations: Durations) -> None:
        self._chat.durations = durations

    def write(self, event: Event) -> bytes:
        """The lines that an event becomes."""
        lines = self._chat.write(event).splitlines()
        return b"".join(line(_to_generate(chunk)) for chunk in lines)

    def keep_alive(self) -> bytes:
        """Nothing: clients read every line as JSON, empty ones too."""
        return b""


def _to_generate(chunk: bytes) -> dict[str, Any]:
    """The form for /api/generate of a chat's answer, or of a line of it. This API has no tools."""
    reply: dict[str, Any] = msgspec.json.decode(chunk)
    message = reply.pop("message", None)
    if message is None:  # an error
        return reply
    shown = {"response": message.get("content", "")}
    if message.get("thinking"):
        shown["thinking"] = message["thinking"]
    head = {name: reply.pop(name) for name in ("model", "created_at") if name in reply}
    return head | shown | {"done": False} | reply


def _to_chat(chunk: bytes) -> bytes:
    """The form for a chat; a line that is not an object is left for its reader to report."""
    try:
        reply = msgspec.json.decode(chunk)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return chunk
    if not isinstance(reply, dict) or "response" not in reply:
        return chunk
    message = {"role": "assistant", "content": reply.pop("response")}
    if reply.get("thinking"):
        message["thinking"] = reply.pop("thinking")
    return msgspec.json.encode({**reply, "message": message})
