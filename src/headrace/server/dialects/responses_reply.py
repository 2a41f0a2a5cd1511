"""A response of OpenAI's Responses API, with what of a request only this API has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.conversation.reading import AnswerReading
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.event import Event, PartDelta, PartEnd, PartStart, ReplyStart
from headrace.server.api_error import ApiError
from headrace.server.dialects.neutral_reply import NeutralReply
from headrace.server.dialects.thought_signature import sealed_thought
from headrace.server.generation.logprobs import TokenTable
from headrace.server.generation.pieces import Piece
from headrace.server.replies.reply import Head

if TYPE_CHECKING:
    from headrace.protocol.dialects.openai_responses import OpenAIResponsesClient


class ResponsesReply(NeutralReply):
    """A reply of the Responses API, whole or as its events."""

    def __init__(
        self,
        side: OpenAIResponsesClient,
        call: ChatCall,
        head: Head,
        prompt_ids: Sequence[int],
        reading: AnswerReading | None,
        tokenizer: TokenTable,
        *,
        new_id: Callable[[], str],
        is_stored: bool,
    ) -> None:
        """is_stored: whether it is to be found later."""
        writer = side.stream_writer(call)
        super().__init__(
            side, call, head, prompt_ids, reading, writer, tokenizer=tokenizer, new_id=new_id
        )
        self._events_writer = writer
        self._is_stored = is_stored
        self._seals_thoughts = call.thought_signatures is True
        """Whether each thought is in its signature too, for clients that send back nothing else of
        it."""
        self._bytes_before_end = 0
        """Of what follows the last piece: all but the last event."""

    def start_event(self) -> ReplyStart:
        """The start, which says that the id is the response's own, and whether it is stored."""
        extra = {"object": "response", "store": self._is_stored}
        return msgspec.structs.replace(super().start_event(), extra=extra)

    @property
    def ended(self) -> dict[str, Any] | None:
        """The response object of a stream, once its last event is made."""
        return self._events_writer.whole

    def last_events(self) -> Iterator[bytes]:
        """What follows the last piece; the reply's end is one event, as its choice has ended."""
        *before, end = super().last_events()
        self._bytes_before_end = sum(map(len, before))
        yield from (*before, end)

    def not_stored(self, last: bytes) -> bytes:
        """The joined `last_events` with the last of them saying that it is not stored."""
        self._is_stored = False
        return last[: self._bytes_before_end] + self._events_writer.not_stored()

    def failed(self, error: ApiError) -> bytes:
        """The end of a stream that failed: nothing of it is stored."""
        self._events_writer.not_stored()
        return super().failed(error)

    def _take(self, index: int, piece: Piece) -> Iterator[Event]:
        if not self._seals_thoughts:
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
