"""A tally that also records the answer it counts, for the cache."""

from __future__ import annotations

from headrace.gateway.cache.kept import MOST_BYTES, is_worth_keeping
from headrace.gateway.serving.tally import Tally
from headrace.protocol.neutral.collect import Collector
from headrace.protocol.neutral.event import CompletePart, Event, PartDelta
from headrace.protocol.neutral.reply import ChatReply

# A token's log probabilities with the usual number of alternatives.
_LOGPROB_BYTES = 100


class RecordingTally(Tally):
    """A tally that records an answer in `dialect`; one that is too large to keep is dropped."""

    keeps_all = True

    def __init__(self, input_tokens: int, dialect: str) -> None:
        super().__init__(input_tokens)
        self._collector: Collector | None = Collector(dialect)
        self._size = 0
        self._whole: ChatReply | None = None

    def take(self, event: Event) -> None:
        """See Tally."""
        super().take(event)
        if self._collector is None:
            return
        self._size += _size(event)
        try:
            if self._size > MOST_BYTES:
                self._collector = None
            else:
                self._collector.take(event)
        except ValueError:  # a reader that breaks the grammar of events
            self._collector = None

    def take_reply(self, reply: ChatReply) -> None:
        """See Tally."""
        super().take_reply(reply)
        self._whole = reply

    @property
    def reply(self) -> ChatReply | None:
        """The answer to keep; None if it was cut off, refused, damaged or too large."""
        if not self.ended or self.failure is not None:
            return None
        whole = self._whole
        if whole is None and self._collector is not None:
            whole = self._collector.reply()
        return whole if whole is not None and is_worth_keeping(whole) else None


def _size(event: Event) -> int:
    """Its approximate size in bytes of JSON."""
    if isinstance(event, PartDelta):
        return len(event.text) + _LOGPROB_BYTES * len(event.logprobs or ())
    if isinstance(event, CompletePart):
        value = event.value
        return len(getattr(value, "text", "")) + len(getattr(value, "data", None) or "")
    return 0
