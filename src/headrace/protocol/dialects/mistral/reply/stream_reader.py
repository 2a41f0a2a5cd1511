"""Mistral's stream: OpenAI's form, with the usage on the last chunk and [DONE] after it."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.json_values import mapping, objects, read_object, text
from headrace.protocol.dialects.mistral.reply.choice_reader import ChoiceReader
from headrace.protocol.dialects.mistral.reply.failures import is_error, reported_failure
from headrace.protocol.dialects.mistral.reply.read_reply import read_began, read_finish, read_index
from headrace.protocol.dialects.mistral.reply.usage import read_usage
from headrace.protocol.dialects.status_failure import short
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import ChoiceEnd, Event, ReplyEnd, ReplyFailure, ReplyUsage
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.usage import TokenUsage
from headrace.protocol.sse import DONE_DATA, SSEReader, StreamTooLargeError


class MistralStreamReader:
    """A `StreamReader` for Mistral's streams.

    choices: how many were requested. The ends of choices are reported together when the last has
    arrived, the usage at the end of the stream. `p`, which only pads the chunks, is dropped.
    """

    def __init__(self, choices: int = 1) -> None:
        self._sse = SSEReader()
        self._wanted = choices
        self._began = False
        self._over = False
        self._choices: dict[int, ChoiceReader] = {}
        self._finished: dict[int, ChoiceEnd] = {}
        self._usage: TokenUsage | None = None

    def feed(self, piece: bytes) -> list[Event]:
        """Events completed by `piece`."""
        events: list[Event] = []
        if self._over:
            return events
        try:
            for event in self._sse.feed(piece):
                if event.data == DONE_DATA:
                    self._end(events)
                else:
                    self._take(read_object(event.data), events)
                if self._over:
                    break
        except (DamagedReplyError, StreamTooLargeError) as error:
            self._fail(events, Failure(kind="damaged", message=short(str(error))))
        return events

    def end(self) -> list[Event]:
        """A ReplyFailure if the stream stopped before [DONE]."""
        events: list[Event] = []
        if not self._over:
            words = "Mistral's stream stopped before its end"
            self._fail(events, Failure(kind="network", message=words))
        return events

    def _fail(self, events: list[Event], failure: Failure) -> None:
        """End with a failure; usage is reported all the same, since it may be billed."""
        self._over = True
        if self._usage is not None:
            events.append(ReplyUsage(usage=self._usage))
        events.append(ReplyFailure(failure))

    def _take(self, chunk: dict[str, Any], events: list[Event]) -> None:
        if is_error(chunk):
            self._fail(events, reported_failure(chunk))
            return
        if not self._began:
            self._began = True
            events.append(read_began(chunk))
        # Before the choices: one that failed was counted in the same chunk.
        self._usage = read_usage(chunk.get("usage")) or self._usage
        for choice in objects(chunk.get("choices")):
            self._take_choice(choice, events)
            if self._over:
                return
        if self._finished and len(self._finished) >= max(len(self._choices), self._wanted):
            self._emit_ends(events)

    def _take_choice(self, choice: dict[str, Any], events: list[Event]) -> None:
        index = read_index(choice)
        reader = self._choices.get(index)
        if reader is None:
            reader = self._choices[index] = ChoiceReader(index)
        if reader.finished:
            return
        reader.take(mapping(choice.get("delta")), events, whole=False)
        reason = text(choice.get("finish_reason"))
        if not reason:
            return
        reader.close(events)
        reader.finished = True
        finish = read_finish(reason)
        if isinstance(finish, Failure):
            self._fail(events, finish)
        else:
            self._finished[index] = ChoiceEnd(choice=index, reason=finish)

    def _emit_ends(self, events: list[Event]) -> None:
        events += (self._finished[index] for index in sorted(self._finished))
        self._finished.clear()

    def _end(self, events: list[Event]) -> None:
        unfinished = any(not reader.finished for reader in self._choices.values())
        self._emit_ends(events)
        if unfinished or not self._choices:
            words = "Mistral's stream ended before its answer did"
            self._fail(events, Failure(kind="damaged", message=words))
            return
        self._over = True
        if self._usage is not None:
            events.append(ReplyUsage(usage=self._usage))
        events.append(ReplyEnd())
