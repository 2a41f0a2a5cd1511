"""The writer of the lines that an Ollama client reads."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.ollama.reply.usage import Durations
from headrace.protocol.dialects.ollama.reply.write_reply import (
    Ending,
    Head,
    line,
    own_extra,
    unparsed,
    write_parts,
    write_tool_call,
)
from headrace.protocol.dialects.ollama.timestamp import rfc3339
from headrace.protocol.dialects.openai_chat.thoughts import write_detail
from headrace.protocol.neutral.dialect import AnswerTooLongError
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    CompletePart,
    Event,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.part import Thinking, ToolCall
from headrace.protocol.neutral.reply import Finish
from headrace.protocol.neutral.usage import TokenUsage
from headrace.protocol.sse import MAX_EVENT_BYTES

# What a piece that is held takes beside its text.
_PIECE_CHARACTERS = 64


class _Held:
    """A part that is written when it is whole, or whose text may be needed then."""

    def __init__(self, began: PartStart) -> None:
        self.began = began
        self.pieces: list[str] = []

    def text(self) -> str:
        return "".join(self.pieces)


class OllamaStreamWriter:
    """A writer of one answer.

    Tool calls are written when they are complete, as one object. Ollama's answers have one choice:
    others are dropped. created_at: the time in all lines; "" for that of the provider, or else
    1970. durations: may be set until ReplyEnd is written; a writer has no clock.
    """

    def __init__(self, model: str, created_at: str = "") -> None:
        self.durations = Durations()
        self._created_at = created_at
        self._head = Head(model, created_at or rfc3339(None), {})
        self._held: dict[int, _Held] = {}
        self._held_characters = 0
        self._calls = 0
        self._thoughts = 0
        self._finish: Finish | None = None
        self._extra: dict[str, Any] = {}
        self._usage: TokenUsage | None = None
        self._is_over = False

    def write(self, event: Event) -> bytes:
        """The lines that an event becomes. Raises AnswerTooLongError."""
        if self._is_over:
            return b""
        if isinstance(event, PartDelta):
            return self._grow(event) if event.choice == 0 else b""
        if isinstance(event, ReplyStart):
            self._begin(event)
        elif isinstance(event, ReplyUsage):
            self._usage = event.usage
        elif isinstance(event, ReplyEnd):
            return self._end()
        elif isinstance(event, ReplyFailure):
            return self._fail(event.failure.message)
        elif event.choice != 0:
            return b""
        elif isinstance(event, PartStart):
            if event.kind in ("tool_call", "thinking"):
                self._held[event.part] = _Held(event)
        elif isinstance(event, PartEnd):
            return self._end_part(event)
        elif isinstance(event, CompletePart):
            return self._complete(event)
        elif isinstance(event, ChoiceEnd):
            self._finish = event.reason
            self._extra = event.extra
        return b""

    def keep_alive(self) -> bytes:
        """Nothing: clients read every line as JSON, empty ones too."""
        return b""

    def _begin(self, event: ReplyStart) -> None:
        self._head = Head(
            event.model or self._head.model,
            self._created_at or rfc3339(event.created_s),
            own_extra(event.extra),
        )

    def _grow(self, event: PartDelta) -> bytes:
        held = self._held.get(event.part)
        if held is not None:
            self._held_characters += len(event.text) + _PIECE_CHARACTERS
            if self._held_characters > MAX_EVENT_BYTES:
                raise AnswerTooLongError(
                    f"more than {MAX_EVENT_BYTES} characters arrived for one part"
                )
            held.pieces.append(event.text)
            if held.began.kind == "tool_call":
                return b""
        if not event.text and not event.logprobs:
            return b""
        name = "content" if held is None else "thinking"
        return self._chunk({name: event.text}, event.logprobs)

    def _end_part(self, event: PartEnd) -> bytes:
        held = self._held.pop(event.part, None)
        if held is None:
            return b""
        text = held.text()
        self._held_characters -= len(text) + _PIECE_CHARACTERS * len(held.pieces)
        if held.began.kind == "thinking":
            return self._sign(Thinking(text=text, signature=event.signature))
        call = ToolCall(
            id=held.began.id,
            name=held.began.name,
            arguments=text,
            signature=event.signature,
        )
        written = write_tool_call(call, self._calls)
        if written is None:
            return self._chunk({"content": unparsed(call)})
        self._calls += 1
        return self._chunk({"tool_calls": [written]})

    def _sign(self, thought: Thinking) -> bytes:
        """A signed thought once more, with its signature; its text was written as it came."""
        self._thoughts += 1
        if thought.signature is None:
            return b""
        return self._chunk({"reasoning_details": [write_detail(thought, self._thoughts - 1)]})

    def _complete(self, event: CompletePart) -> bytes:
        thought = event.value
        if isinstance(thought, Thinking):
            written = self._chunk({"thinking": thought.text}) if thought.text else b""
            return written + self._sign(thought)
        message = write_parts([event.value])
        return self._chunk(message) if any(message.values()) else b""

    def _chunk(
        self, message: dict[str, Any], logprobs: list[dict[str, Any]] | None = None
    ) -> bytes:
        chunk = self._head.chunk(message, done=False)
        if logprobs:
            chunk["logprobs"] = logprobs
        return line(chunk)

    def _end(self) -> bytes:
        self._is_over = True
        ending = Ending(self._finish, self._usage, self.durations, self._extra)
        return line(self._head.chunk({}, **ending.fields()))

    def _fail(self, message: str) -> bytes:
        self._is_over = True
        return line({"error": message})
