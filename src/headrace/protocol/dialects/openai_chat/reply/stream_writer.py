"""An answer as a stream of `chat.completion.chunk`s.

For each choice: a chunk with the role, chunks with content, one with `finish_reason`; then, if it
was asked for, one with `choices: []` and the usage, and [DONE]. A tool call's index stands in each
of its pieces, id and name in the first alone. An error is an event of its own and the last.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.openai_chat.reply.finish import write_finish
from headrace.protocol.dialects.openai_chat.reply.usage import write_usage
from headrace.protocol.dialects.openai_chat.reply.write_failure import error_body
from headrace.protocol.dialects.openai_chat.reply.write_part import (
    is_custom_call,
    write_image,
    write_sound,
    write_text_fields,
    write_tool_call,
)
from headrace.protocol.dialects.openai_chat.thoughts import write_call_signature, write_detail
from headrace.protocol.dialects.openai_chat.values import DIALECT, mapping
from headrace.protocol.neutral.call import ChatCall
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
from headrace.protocol.neutral.part import (
    Media,
    Opaque,
    Part,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
)
from headrace.protocol.sse import DONE, KEEP_ALIVE, data_event, one_line

_OWN = frozenset({"id", "object", "created", "model", "choices", "usage", "service_tier", "error"})
_BESIDE_CHOICE = frozenset({"message", "finish_reason", "index", "delta", "logprobs"})


class _Shown:
    """The part of a choice that a client has seen. parts: the open parts, by number."""

    def __init__(self) -> None:
        self.calls = 0
        self.images = 0
        self.details = 0
        self.chars = 0
        """Of the content so far."""
        self.parts: dict[int, _Part] = {}


class _Part:
    """An open part. call: its index among the tool calls. thoughts: kept for their signature."""

    def __init__(self, began: PartStart, call: int) -> None:
        self.began = began
        self.call = call
        self.chars = 0
        self.thoughts: list[str] = []


class ChatStreamWriter:
    """A `StreamWriter` for one answer to `call`. `created` is 0 where nobody told it."""

    def __init__(self, call: ChatCall) -> None:
        self._legacy = call.legacy_functions
        self._with_usage = call.stream_usage
        self._choices: dict[int, _Shown] = {}
        self._usage_extra: dict[str, Any] = {}
        self._own = False
        self._head = self._frame(ReplyStart(id="", model=""))
        self._tail = b"]}\n\n"
        self._over = False

    def write(self, event: Event) -> bytes:
        """The bytes an event becomes."""
        if self._over:
            return b""
        if isinstance(event, PartDelta):
            return self._grew(event)
        if isinstance(event, PartStart):
            return self._opened(event.choice) + self._began(event)
        if isinstance(event, PartEnd):
            return self._ended(event)
        if isinstance(event, CompletePart):
            opened = self._opened(event.choice)
            delta = self._complete(self._shown(event.choice), event.value)
            return opened + (self._chunk(event.choice, delta) if delta else b"")
        if isinstance(event, ChoiceEnd):
            return self._opened(event.choice) + self._finished(event)
        if isinstance(event, ReplyStart):
            self._own = event.dialect == DIALECT
            self._head = self._frame(event)
            self._usage_extra = mapping(self._extra(event).get("usage"))
            return self._opened(0)
        if isinstance(event, ReplyUsage):
            return self._counted(event)
        self._over = True
        if isinstance(event, ReplyFailure):
            return data_event(msgspec.json.encode(error_body(event.failure, "")))
        return DONE if isinstance(event, ReplyEnd) else b""

    def keep_alive(self) -> bytes:
        """A comment."""
        return b"" if self._over else KEEP_ALIVE

    def _frame(self, began: ReplyStart) -> bytes:
        """All of a chunk up to its choices."""
        top: dict[str, Any] = {
            "id": began.id,
            "object": "chat.completion.chunk",
            "created": began.created_s or 0,
            "model": began.model,
        }
        top |= {name: value for name, value in self._extra(began).items() if name not in _OWN}
        if self._with_usage:
            top["usage"] = None
        return one_line(b"data: " + msgspec.json.encode(top)[:-1] + b',"choices":[')

    def _extra(self, event: ReplyStart | PartStart | ChoiceEnd | ReplyUsage) -> dict[str, Any]:
        """Fields without a neutral form, if they are of this dialect."""
        return event.extra if self._own else {}

    def _shown(self, choice: int) -> _Shown:
        return self._choices.setdefault(choice, _Shown())

    def _opened(self, choice: int) -> bytes:
        """The chunk with the role, before all others of a choice."""
        if choice in self._choices:
            return b""
        self._choices[choice] = _Shown()
        return self._chunk(choice, {"role": "assistant", "content": "", "refusal": None})

    def _chunk(
        self,
        choice: int,
        delta: dict[str, Any],
        *,
        finish: str | None = None,
        logprobs: dict[str, Any] | None = None,
        more: dict[str, Any] | None = None,
    ) -> bytes:
        written: dict[str, Any] = {
            "index": choice,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish,
        }
        if more:
            written |= more
        return self._head + one_line(msgspec.json.encode(written)) + self._tail

    def _began(self, event: PartStart) -> bytes:
        shown = self._shown(event.choice)
        shown.parts[event.part] = _Part(event, shown.calls)
        if event.kind != "tool_call":
            return b""
        shown.calls += 1
        function = {"name": event.name, "arguments": ""}
        if self._legacy and shown.calls == 1:
            return self._chunk(event.choice, {"function_call": function})
        call = {
            **self._extra(event),
            "index": shown.calls - 1,
            "id": event.id,
            "type": "function",
            "function": function,
        }
        return self._chunk(event.choice, {"tool_calls": [call]})

    def _grew(self, event: PartDelta) -> bytes:
        shown = self._shown(event.choice)
        part = shown.parts.get(event.part)
        if part is None:
            return b""
        delta: dict[str, Any] = {}
        kind, piece = part.began.kind, event.text
        if kind == "tool_call":
            if piece and self._legacy and part.call == 0:
                delta["function_call"] = {"arguments": piece}
            elif piece:
                delta["tool_calls"] = [{"index": part.call, "function": {"arguments": piece}}]
        elif piece and kind == "thinking":
            part.thoughts.append(piece)
            delta["reasoning_content"] = piece
        elif piece:
            delta["refusal" if kind == "refusal" else "content"] = piece
        if kind == "text":
            part.chars += len(piece)
            shown.chars += len(piece)
        if event.extra or event.citations:
            delta |= write_text_fields(
                event.extra, event.citations, shown.chars - part.chars, part.chars, own=self._own
            )
        logprobs: dict[str, Any] | None = None
        if event.logprobs:
            of_refusal = kind == "refusal"
            logprobs = {
                "content": None if of_refusal else event.logprobs,
                "refusal": event.logprobs if of_refusal else None,
            }
        if not delta and logprobs is None:
            return b""
        return self._chunk(event.choice, delta, logprobs=logprobs)

    def _ended(self, event: PartEnd) -> bytes:
        shown = self._shown(event.choice)
        part = shown.parts.pop(event.part, None)
        if part is None or event.signature is None:
            return b""
        return self._chunk(event.choice, self._signed(shown, part, event.signature))

    def _signed(self, shown: _Shown, part: _Part, signature: Signature) -> dict[str, Any]:
        kind = part.began.kind
        if kind == "thinking":
            thought = Thinking(
                text="".join(part.thoughts),
                signature=signature,
                summary=part.began.summary,
                id=part.began.id or None,
            )
            return self._detail(shown, thought)
        content = write_call_signature(signature)
        if kind != "tool_call":
            return {"extra_content": content}
        call = {"index": part.call, "function": {"arguments": ""}, "extra_content": content}
        return {"tool_calls": [call]}

    def _detail(self, shown: _Shown, thought: Thinking) -> dict[str, Any]:
        shown.details += 1
        return {"reasoning_details": [write_detail(thought, shown.details - 1)]}

    def _complete(self, shown: _Shown, value: Part) -> dict[str, Any]:
        if isinstance(value, Thinking):
            delta = {"reasoning_content": value.text} if value.text else {}
            signed = value.signature is not None or value.redacted
            return {**delta, **self._detail(shown, value)} if signed else delta
        if isinstance(value, Text):
            begins, length = shown.chars, len(value.text)
            shown.chars += length
            fields = write_text_fields(value.extra, value.citations, begins, length, own=self._own)
            return {"content": value.text, **fields}
        if isinstance(value, Refusal):
            return {"refusal": value.text}
        if isinstance(value, ToolCall):
            shown.calls += 1
            call = write_tool_call(value, own=self._own)
            if self._legacy and shown.calls == 1:
                return {"function_call": call["function"]}
            return {"tool_calls": [{**call, "index": shown.calls - 1}]}
        if is_custom_call(value) and isinstance(value, Opaque):
            shown.calls += 1
            return {"tool_calls": [{**value.value, "index": shown.calls - 1}]}
        if isinstance(value, Media) and value.kind == "image":
            shown.images += 1
            return {"images": [write_image(value, shown.images - 1)]}
        if isinstance(value, Media) and value.kind == "audio":
            return {"audio": write_sound(value)}
        return {}

    def _finished(self, event: ChoiceEnd) -> bytes:
        extra = self._extra(event)
        more = {name: value for name, value in extra.items() if name not in _BESIDE_CHOICE}
        if event.stop_sequence is not None:
            more["stop_reason"] = event.stop_sequence
        finish = write_finish(event.reason, extra, legacy=self._legacy)
        return self._chunk(event.choice, mapping(extra.get("message")), finish=finish, more=more)

    def _counted(self, event: ReplyUsage) -> bytes:
        if not self._with_usage:
            return b""
        head = self._head[: self._head.rindex(b',"usage":null')]
        told = self._extra(event)
        extra = {**self._usage_extra, **mapping(told.get("usage"))}
        last: dict[str, Any] = {"choices": [], "usage": write_usage(event.usage, extra)}
        if event.service_tier is not None:
            last["service_tier"] = event.service_tier
        last |= {name: value for name, value in told.items() if name not in _OWN}
        return head + b"," + one_line(msgspec.json.encode(last)[1:]) + b"\n\n"
