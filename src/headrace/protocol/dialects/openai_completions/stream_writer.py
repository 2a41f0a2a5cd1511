"""An answer as a stream of `text_completion`s.

For each choice: events with text, one with `finish_reason`; then, if it was asked for, one with
`choices: []` and the usage, and [DONE]. An error is an event of its own and the last.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.dialects.openai_chat.reply.usage import write_usage
from headrace.protocol.dialects.openai_chat.reply.write_failure import error_body
from headrace.protocol.dialects.openai_completions.logprobs import write_columns
from headrace.protocol.dialects.openai_completions.values import DIALECT, OBJECT
from headrace.protocol.dialects.openai_completions.write_reply import write_finish
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    CompletePart,
    Event,
    PartDelta,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.part import Refusal, Text
from headrace.protocol.sse import DONE, KEEP_ALIVE, data_event

_SEEN = ("text", "refusal")


class CompletionStreamWriter:
    """A `StreamWriter` for one answer to `call`. `created` is 0 where nobody told it."""

    def __init__(self, call: ChatCall) -> None:
        self._with_usage = call.stream_usage
        self._head: dict[str, Any] = {"id": "", "object": OBJECT, "created": 0, "model": ""}
        self._own = False
        self._seen: set[tuple[int, int]] = set()
        self._offsets: dict[int, int] = {}
        self._over = False

    def write(self, event: Event) -> bytes:
        """The bytes an event becomes."""
        if self._over:
            return b""
        if isinstance(event, PartDelta):
            return self._grew(event)
        if isinstance(event, PartStart):
            if event.kind in _SEEN:
                self._seen.add((event.choice, event.part))
        elif isinstance(event, CompletePart):
            if isinstance(event.value, Text | Refusal) and event.value.text:
                return self._event(event.choice, event.value.text)
        elif isinstance(event, ChoiceEnd):
            extra = event.extra if self._own else {}
            return self._event(event.choice, "", finish=write_finish(event.reason), more=extra)
        elif isinstance(event, ReplyStart):
            self._begin(event)
        elif isinstance(event, ReplyUsage):
            if self._with_usage:
                chunk = {**self._head, "choices": [], "usage": write_usage(event.usage, {})}
                return data_event(msgspec.json.encode(chunk))
        elif isinstance(event, ReplyFailure):
            self._over = True
            return data_event(msgspec.json.encode(error_body(event.failure, "")))
        elif isinstance(event, ReplyEnd):
            self._over = True
            return DONE
        return b""

    def keep_alive(self) -> bytes:
        """A comment."""
        return b"" if self._over else KEEP_ALIVE

    def _begin(self, event: ReplyStart) -> None:
        self._own = event.dialect == DIALECT
        self._head |= {
            "id": event.id,
            "created": event.created_s or 0,
            "model": event.model,
        }
        if self._own:
            self._head = {**event.extra, **self._head}

    def _grew(self, event: PartDelta) -> bytes:
        if (event.choice, event.part) not in self._seen or not (event.text or event.logprobs):
            return b""
        columns = None
        offset = self._offsets.get(event.choice, 0)
        if self._own and event.logprobs:
            columns = write_columns(event.logprobs, offset)
        self._offsets[event.choice] = offset + len(event.text)
        return self._event(event.choice, event.text, logprobs=columns)

    def _event(
        self,
        choice: int,
        text: str,
        *,
        logprobs: dict[str, Any] | None = None,
        finish: str | None = None,
        more: dict[str, Any] | None = None,
    ) -> bytes:
        written = {"text": text, "index": choice, "logprobs": logprobs, "finish_reason": finish}
        chunk: dict[str, Any] = {**self._head, "choices": [{**(more or {}), **written}]}
        if self._with_usage:
            chunk["usage"] = None
        return data_event(msgspec.json.encode(chunk))
