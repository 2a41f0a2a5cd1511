"""Counts the usage of an answer while it passes."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.gateway.routing.estimate import BYTES_PER_TOKEN, utf8_bytes
from headrace.protocol.neutral.citation import Citation, Source
from headrace.protocol.neutral.dialect import UsageSummary
from headrace.protocol.neutral.event import (
    ChoiceEnd,
    CompletePart,
    Event,
    PartDelta,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
    has_content,
)
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Part, Text
from headrace.protocol.neutral.reply import ChatReply, Finish
from headrace.protocol.neutral.usage import TokenUsage


class Tally:
    """The usage of one answer.

    `input_tokens` is the estimate that counts if the provider reports nothing. `worked_ns` is the
    time spent on a stream's pieces, without waiting. `keeps_all` says whether it needs more of an
    answer than what is billed. `service_tier` is the reported tier, None if there is none.
    """

    keeps_all = False

    def __init__(self, input_tokens: int) -> None:
        self._input_tokens = input_tokens
        self._early: TokenUsage | None = None
        self._counted: TokenUsage | None = None
        self._bytes = 0
        self.finish: Finish | None = None
        self.failure: Failure | None = None
        self.ended = False
        self.has_content = False
        self.worked_ns = 0
        self.service_tier: str | None = None
        self._cited: set[Source] = set()

    def take(self, event: Event) -> None:
        """Count one event of a stream."""
        self.has_content = self.has_content or has_content(event)
        if isinstance(event, PartDelta):
            self._bytes += utf8_bytes(event.text)
            if event.citations:
                self._cite(event.citations)
        elif isinstance(event, CompletePart):
            self._take_part(event.value)
        elif isinstance(event, ReplyStart):
            self._early, self.service_tier = event.usage, event.service_tier
        elif isinstance(event, ReplyUsage):
            self._counted = event.usage
            self.service_tier = event.service_tier or self.service_tier
        elif isinstance(event, ChoiceEnd):
            self.finish = event.reason
        elif isinstance(event, ReplyFailure):
            self.failure = event.failure
        elif isinstance(event, ReplyEnd):
            self.ended = True

    def take_reply(self, reply: ChatReply) -> None:
        """Count an answer that is not streamed."""
        self.ended = self.has_content = True
        self._counted, self.service_tier = reply.usage, reply.service_tier
        self._bytes = 0
        for choice in reply.choices:
            for part in choice.parts:
                self._take_part(part)
        self.finish = next((choice.finish for choice in reply.choices), None)

    def take_glance(self, glance: UsageSummary) -> None:
        """Count an answer that is not streamed, of which no more was parsed."""
        self.ended = self.has_content = True
        self._counted, self.finish, self.service_tier = glance

    def lost_citations(self, sources: frozenset[Source]) -> tuple[str, ...]:
        """What the answer cites and a client with a form for these sources does not get."""
        return tuple(f"citations ({source})" for source in sorted(self._cited - sources))

    @property
    def usage(self) -> tuple[TokenUsage, Literal["provider", "estimated"]]:
        """The provider's count; for a stream that was cut off, or a provider that does not count,
        an estimate from what arrived."""
        if self._counted is not None:
            return self._counted, "provider"
        output = -(-self._bytes // BYTES_PER_TOKEN)
        if self._early is not None:
            output = max(output, self._early.output_tokens)
            return msgspec.structs.replace(self._early, output_tokens=output), "estimated"
        return TokenUsage(input_tokens=self._input_tokens, output_tokens=output), "estimated"

    def _take_part(self, part: Part) -> None:
        text, arguments = getattr(part, "text", ""), getattr(part, "arguments", "")
        self._bytes += utf8_bytes(text) + utf8_bytes(arguments)
        if isinstance(part, Text) and part.citations:
            self._cite(part.citations)

    def _cite(self, citations: tuple[Citation, ...]) -> None:
        self._cited.update(citation.source for citation in citations)
