"""From events to the whole answer, and back: a stream and its reply say the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from headrace.protocol.neutral.citation import Citation
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    CompletePart,
    Event,
    Kind,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Part, Refusal, Signature, Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice, Finish
from headrace.protocol.neutral.usage import TokenUsage


class _Open:
    """A part while it grows."""

    def __init__(self, began: PartStart) -> None:
        self.began = began
        self.pieces: list[str] = []
        self.citations: tuple[Citation, ...] = ()
        self.extra: dict[str, Any] = dict(began.extra)

    def part(self, signature: Signature | None) -> Part:
        text = "".join(self.pieces)
        kind = self.began.kind
        if kind == "tool_call":
            return ToolCall(
                id=self.began.id,
                name=self.began.name,
                arguments=text,
                signature=signature,
                extra=self.extra,
            )
        if kind == "thinking":
            return Thinking(
                text=text,
                signature=signature,
                summary=self.began.summary,
                id=self.began.id or None,
            )
        if kind == "refusal":
            return Refusal(text)
        return Text(text=text, signature=signature, citations=self.citations, extra=self.extra)


class _Growing:
    """A choice while it grows."""

    def __init__(self) -> None:
        self.parts: dict[int, Part | _Open] = {}
        self.logprobs: list[dict[str, Any]] = []
        self.finish: Finish | None = None
        self.stop_sequence: str | None = None
        self.extra: dict[str, Any] = {}

    def choice(self, index: int) -> Choice:
        parts = (
            part.part(None) if isinstance(part, _Open) else part
            for _, part in sorted(self.parts.items())
        )
        return Choice(
            index=index,
            parts=tuple(parts),
            finish=self.finish,
            stop_sequence=self.stop_sequence,
            logprobs=self.logprobs or None,
            extra=self.extra,
        )


class Collector:
    """A collector of the events of one answer, in order, into a reply. An answer that was cut off
    gives what had arrived.

    failure: why the stream ended early, None while it runs or if it ended well.
    """

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._began = ReplyStart(id="", model="")
        self._choices: dict[int, _Growing] = {}
        self._service_tier: str | None = None
        self._extra: dict[str, Any] = {}
        self.usage: TokenUsage | None = None
        self.failure: Failure | None = None
        self.ended = False

    def take(self, event: Event) -> None:
        """Add one event."""
        if isinstance(event, ReplyStart):
            self._began = event
            self._extra = event.extra
            self.usage = event.usage
            self._service_tier = event.service_tier
        elif isinstance(event, ReplyUsage):
            self.usage = event.usage
            self._service_tier = event.service_tier or self._service_tier
            self._extra = self._extra | event.extra
        elif isinstance(event, ReplyFailure):
            self.failure = event.failure
        elif isinstance(event, ReplyEnd):
            self.ended = True
        else:
            self._take_content(self._choices.setdefault(event.choice, _Growing()), event)

    def _take_content(
        self, choice: _Growing, event: PartStart | PartDelta | PartEnd | CompletePart | ChoiceEnd
    ) -> None:
        if isinstance(event, ChoiceEnd):
            choice.finish = event.reason
            choice.stop_sequence = event.stop_sequence
            choice.extra = event.extra
            return
        if isinstance(event, PartStart):
            choice.parts[event.part] = _Open(event)
            return
        if isinstance(event, CompletePart):
            choice.parts[event.part] = event.value
            return
        part = choice.parts.get(event.part)
        if not isinstance(part, _Open):
            raise ValueError(f"part {event.part} of choice {event.choice} is not open")
        if isinstance(event, PartEnd):
            choice.parts[event.part] = part.part(event.signature)
            return
        part.pieces.append(event.text)
        part.citations += event.citations
        part.extra |= event.extra
        choice.logprobs += event.logprobs or []

    def reply(self) -> ChatReply:
        """The reply so far."""
        return ChatReply(
            dialect=self._dialect,
            id=self._began.id,
            model=self._began.model,
            choices=tuple(choice.choice(index) for index, choice in sorted(self._choices.items())),
            usage=self.usage,
            created_s=self._began.created_s,
            service_tier=self._service_tier,
            extra=self._extra,
        )


def collected(dialect: str, events: Iterable[Event]) -> ChatReply:
    """The answer in `events`."""
    collector = Collector(dialect)
    for event in events:
        collector.take(event)
    return collector.reply()


def replayed(reply: ChatReply) -> Iterator[Event]:
    """An answer that is whole already, as the events of a stream: every part in one piece."""
    yield ReplyStart(
        id=reply.id,
        model=reply.model,
        created_s=reply.created_s,
        service_tier=reply.service_tier,
        extra=reply.extra,
        dialect=reply.dialect,
    )
    for choice in reply.choices:
        for number, part in enumerate(choice.parts):
            yield from _part_events(choice, number, part)
    for choice in reply.choices:
        if choice.finish is not None:
            yield ChoiceEnd(
                choice=choice.index,
                reason=choice.finish,
                stop_sequence=choice.stop_sequence,
                extra=choice.extra,
            )
    if reply.usage is not None:
        yield ReplyUsage(usage=reply.usage, service_tier=reply.service_tier)
    yield ReplyEnd()


def _part_events(choice: Choice, number: int, part: Part) -> Iterator[Event]:
    whole = _streamed(part, choice.index, number)
    if whole is None:
        yield CompletePart(choice=choice.index, part=number, value=part)
        return
    began, grew, ended = whole
    # Log probabilities are of all the text of a choice; they go out with the first of it.
    first = next(
        (
            at
            for at, part in enumerate(choice.parts)
            if isinstance(part, Text) and _streamed(part, choice.index, at)
        ),
        None,
    )
    yield began
    yield msgspec.structs.replace(grew, logprobs=choice.logprobs) if number == first else grew
    yield ended


def _streamed(part: Part, choice: int, number: int) -> tuple[PartStart, PartDelta, PartEnd] | None:
    """The events of a part; None if only a CompletePart can express it."""
    signature: Signature | None = None
    kind: Kind
    call_id = name = ""
    summary = False
    known: dict[str, Any] = {}
    grown: dict[str, Any] = {}
    citations: tuple[Citation, ...] = ()
    if isinstance(part, Text):
        kind, text, signature, grown = "text", part.text, part.signature, part.extra
        citations = part.citations
    elif isinstance(part, Refusal):
        kind, text = "refusal", part.text
    elif isinstance(part, Thinking):
        kind, text, signature = "thinking", part.text, part.signature
        call_id, summary = part.id or "", part.summary
    elif isinstance(part, ToolCall):
        kind, text, signature = "tool_call", part.arguments, part.signature
        call_id, name, known = part.id, part.name, part.extra
    else:
        return None
    began = PartStart(
        choice=choice,
        part=number,
        kind=kind,
        id=call_id,
        name=name,
        summary=summary,
        extra=known,
    )
    grew = PartDelta(choice=choice, part=number, text=text, citations=citations, extra=grown)
    again = _Open(began)
    again.pieces.append(text)
    again.citations = citations
    again.extra |= grown
    if again.part(signature) != part:
        return None
    return began, grew, PartEnd(choice=choice, part=number, signature=signature)
