"""A response of OpenAI's Responses API, with what of a request only this API has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from headrace.protocol.neutral.event import Event, PartDelta, PartEnd, PartStart, ReplyStart
from headrace.server.dialects.neutral_reply import NeutralReply
from headrace.server.dialects.thought_signature import sealed_thought
from headrace.server.generation import Piece


class ResponsesReply(NeutralReply):
    """A response.

    stored: whether it is to be found later; seals_thoughts: whether each thought is to be in its
    signature too, for clients that send back nothing else of it.
    """

    stored = False
    seals_thoughts = False

    def start_event(self) -> ReplyStart:
        """The start, which says that the id is the response's own, and whether it is stored."""
        extra = {"object": "response", "store": self.stored}
        return msgspec.structs.replace(super().start_event(), extra=extra)

    @property
    def ended(self) -> dict[str, Any] | None:
        """The response object of a stream, once its last event is made."""
        whole: dict[str, Any] | None = self.writer.whole  # type: ignore[attr-defined]
        return whole

    def _take(self, index: int, piece: Piece) -> Iterator[Event]:
        if not self.seals_thoughts:
            yield from super()._take(index, piece)
            return
        for event in super()._take(index, piece):
            yield self._sealed(event)

    def _sealed(self, event: Event) -> Event:
        match event:
            case PartStart():
                self._thought: list[str] | None = [] if event.kind == "thinking" else None
            case PartDelta() if self._thought is not None:
                self._thought.append(event.text)
            case PartEnd() if self._thought is not None:
                thought = "".join(self._thought)
                self._thought = None
                return msgspec.structs.replace(event, signature=sealed_thought(thought))
        return event
