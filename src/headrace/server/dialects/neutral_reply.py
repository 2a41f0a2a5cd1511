"""A reply in a client's dialect, whole or as a stream: pieces become events, events its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from headrace.conversation.reading import AnswerReading
from headrace.http.request_id import random_id
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import Collector
from headrace.protocol.neutral.dialect import AnswerTooLongError, ClientSide, StreamWriter
from headrace.protocol.neutral.event import (
    Event,
    ReplyEnd,
    ReplyFailure,
    ReplyStart,
    ReplyUsage,
)
from headrace.protocol.neutral.usage import TokenUsage
from headrace.protocol.openai.choice import ChoiceMetrics
from headrace.protocol.openai.error import SERVER_ERROR
from headrace.server.api_error import ApiError
from headrace.server.dialects.dialect_paths import failure_of
from headrace.server.dialects.events import ChoiceEvents
from headrace.server.generation.logprobs import TokenTable
from headrace.server.generation.pieces import Piece
from headrace.server.replies.reply import Head, StreamForm, Tally

DIALECT = "headrace"
"""The name under which this server's own answers are events."""


class NeutralReply:
    """A reply in the dialect of a client's API, for `headrace.server.answer`.

    A dialect whose answers have more than events overrides `start_event` and `at_end`.
    """

    def __init__(
        self,
        side: ClientSide,
        call: ChatCall,
        head: Head,
        prompt_ids: Sequence[int],
        reading: AnswerReading | None = None,
        writer: StreamWriter | None = None,
        *,
        tokenizer: TokenTable | None = None,
        signs_thoughts: bool = False,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        """side: of the dialect. head: its id and model are the reply's. writer: of a stream; None
        for one of the side's. reading, tokenizer, signs_thoughts: as of ChoiceEvents."""
        self.side = side
        self.call = call
        self.head = head
        self.writer = writer or side.stream_writer(call)
        num_choices = call.choices or 1
        self._tally = Tally([len(prompt_ids)], num_choices)
        reasoning = call.reasoning
        self._choices = [
            ChoiceEvents(
                index,
                reading,
                new_id,
                tokenizer=tokenizer if call.logprobs else None,
                shows_thoughts=reasoning is None or reasoning.shown is not False,
                signs_thoughts=signs_thoughts,
            )
            for index in range(num_choices)
        ]
        self._begun = False
        self._metrics: ChoiceMetrics | None = None
        self._collector = Collector(DIALECT)

    @property
    def form(self) -> StreamForm:
        """What its stream is beside its events."""
        return StreamForm(
            {"content-type": self.side.stream_type()}, self.writer.keep_alive, self.failed
        )

    @property
    def num_broken_calls(self) -> int:
        """Calls so far whose arguments are not a JSON object."""
        return sum(choice.num_broken_calls for choice in self._choices)

    def events(self, index: int, piece: Piece) -> Iterator[bytes]:
        """The bytes of a piece of choice `index`."""
        for event in self._take(index, piece):
            yield self._written(event)

    def last_events(self) -> Iterator[bytes]:
        """What follows the last piece."""
        for event in self._last():
            yield self._written(event)

    def failed(self, error: ApiError) -> bytes:
        """The end of a stream that failed."""
        return self.writer.write(ReplyFailure(failure_of(error)))

    def add(self, index: int, piece: Piece) -> None:
        """Take a piece of a reply that is not streamed."""
        for event in self._take(index, piece):
            self._collector.take(event)

    def whole(self) -> bytes:
        """The reply made of all pieces added."""
        for event in self._last():
            self._collector.take(event)
        return self.side.write_reply(self._collector.reply(), self.call)

    def start_event(self) -> ReplyStart:
        """The start of the reply, once its first token came."""
        return ReplyStart(
            id=self.head.id,
            model=self.head.model,
            created_s=self.head.created_s,
            usage=self.usage(),
            dialect=DIALECT,
        )

    def at_end(self, metrics: ChoiceMetrics | None) -> dict[str, Any]:
        """What the end of each choice has beside its reason (its `extra`), once all pieces came.

        metrics: of the first choice.
        """
        return {}

    def usage(self) -> TokenUsage:
        """The usage so far."""
        usage = self._tally.usage()
        cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else 0
        reasoning = sum(choice.reasoning_tokens for choice in self._choices)
        return TokenUsage(
            input_tokens=usage.prompt_tokens - cached,
            cache_read_tokens=cached,
            output_tokens=usage.completion_tokens - reasoning,
            reasoning_tokens=reasoning,
        )

    def _take(self, index: int, piece: Piece) -> Iterator[Event]:
        if piece.prefill is not None:
            return
        self._tally.add(index, piece)
        if not self._begun:
            self._begun = True
            yield self.start_event()
        yield from self._choices[index].take(piece)
        if index == 0 and piece.metrics is not None:
            self._metrics = piece.metrics

    def _last(self) -> Iterator[Event]:
        extra = self.at_end(self._metrics)
        for choice in self._choices:
            if choice.end is not None:
                yield msgspec.structs.replace(choice.end, extra=extra) if extra else choice.end
        yield ReplyUsage(usage=self.usage())
        yield ReplyEnd()

    def _written(self, event: Event) -> bytes:
        try:
            return self.writer.write(event)
        except AnswerTooLongError as error:
            raise ApiError(500, str(error), type=SERVER_ERROR, code="answer_too_long") from None
