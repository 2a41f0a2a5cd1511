"""One choice of an answer while it is received: the part that is open, and what its text cites."""

from __future__ import annotations

from typing import Any

from headrace.protocol.dialects.gemini.reply.citations import has_sources, read_citations, within
from headrace.protocol.dialects.gemini.reply.finish import ENDED
from headrace.protocol.dialects.gemini.reply.streamed_call import StreamedCall
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import Event, Kind, PartDelta, PartEnd, PartStart
from headrace.protocol.neutral.part import Signature

# More than any model gives: a stream of ever new fields must not fill the memory.
_MOST_FIELDS = 64
_MOST_CITED_CHARACTERS = 2**18
_OF_CHOICE = frozenset(("content", "finishReason", "index", "logprobsResult"))


class GrowingChoice:
    """A choice while it is received; its methods add events, or return them to be added."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.part = -1
        self.open: Kind | None = None
        """The kind of the part that may still grow."""
        self.calls = False
        self.streamed: StreamedCall | None = None
        """The call whose arguments are incomplete."""
        self.words: list[str] = []
        """The text so far, for spans of it; no more than is worth keeping."""
        self.words_characters = 0
        self.text_part = -1
        self.part_begins = 0
        """Where the last part of text begins in it."""
        self.cited = False
        self.reason = ""
        self.extra: dict[str, Any] = {}

    def began(self, kind: Kind, call_id: str = "", name: str = "") -> PartStart:
        """A part begins, which is open."""
        self.part += 1
        self.open = kind
        if kind == "text":
            self.text_part = self.part
            self.part_begins = self.words_characters
        return PartStart(choice=self.index, part=self.part, kind=kind, id=call_id, name=name)

    def grew(self, piece: str) -> PartDelta:
        """The open part grows."""
        if self.open == "text":
            self.words_characters += len(piece)
            if self.words_characters <= _MOST_CITED_CHARACTERS:
                self.words.append(piece)
        return PartDelta(choice=self.index, part=self.part, text=piece)

    def ended(self, signature: Signature | None = None) -> PartEnd:
        """The open part ends."""
        self.open = None
        return PartEnd(choice=self.index, part=self.part, signature=signature)

    @property
    def is_within_call(self) -> bool:
        """Whether it ended before a call of it was whole. Some leave out the last piece, which
        says nothing, but none stops in the middle of a call."""
        call = self.streamed
        return call is not None and (call.has_open_text or self.reason not in ENDED)

    def take_text(
        self,
        events: list[Event],
        kind: Kind,
        piece: str,
        signature: Signature | None,
        *,
        joins: bool,
    ) -> None:
        """Text or thoughts. joins: whether they may go on with the part that is open."""
        if not piece and signature is None:
            return
        if self.open is not None and (self.open != kind or (piece and not joins)):
            events.append(self.ended())
        if self.open is None:
            events.append(self.began(kind))
        if piece:
            events.append(self.grew(piece))
        if signature is not None:
            events.append(self.ended(signature))

    def cite(self, events: list[Event], start: int) -> None:
        """The sources of the text, in its last part, which may have ended since `start`."""
        if not has_sources(self.extra):
            return
        self.cited = True
        found = read_citations(self.extra, "".join(self.words))
        if not found:
            return
        at, part = len(events), self.text_part
        if self.open != "text" or self.part != part:
            ends = (
                place
                for place in range(start, len(events))
                if isinstance(event := events[place], PartEnd)
                and (event.choice, event.part) == (self.index, part)
            )
            at = next(ends, -1)
        citations = tuple(within(citation, self.part_begins) for citation in found)
        if at < 0:  # the text ended long ago: an empty one has them
            if self.open is not None:
                events.append(self.ended())
            events.append(self.began("text"))
            at, part = len(events), self.part
        events.insert(at, PartDelta(choice=self.index, part=part, text="", citations=citations))

    def keep(self, candidate: dict[str, Any]) -> None:
        """Keep fields without a neutral form: the last value, with objects merged."""
        for key, value in candidate.items():
            if key in _OF_CHOICE or value is None or value == {} or value == []:
                continue
            before = self.extra.get(key)
            if isinstance(before, dict) and isinstance(value, dict):
                value = few({**before, **value})
            self.extra[key] = value
        few(self.extra)


def few(told: dict[str, Any]) -> dict[str, Any]:
    """The fields of an object, unless they are more than any model gives. Raises
    DamagedReplyError."""
    if len(told) > _MOST_FIELDS:
        raise DamagedReplyError(f"an object of the reply has more than {_MOST_FIELDS} fields")
    return told
