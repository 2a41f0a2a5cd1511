"""How much of an answer a stream's writer keeps: its last event repeats all of it."""

from __future__ import annotations

import msgspec

from headrace.protocol.dialects.openai_responses.values import objects
from headrace.protocol.neutral.dialect import AnswerTooLongError
from headrace.protocol.neutral.event import CompletePart, PartDelta, PartEnd, PartStart
from headrace.protocol.sse import MAX_EVENT_BYTES

# Of a part, a piece or a token that might have come instead, beside its text: the least that the
# objects for it take. So a million pieces of a token each are too many, and no model says as much.
_BESIDE_TEXT_BYTES = 64


class Kept:
    """The running size of what is kept. most_bytes: no reader accepts a larger event."""

    def __init__(self, most_bytes: int = MAX_EVENT_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0

    def take(self, event: PartStart | PartDelta | PartEnd | CompletePart) -> None:
        """Raises AnswerTooLongError."""
        self._bytes += _BESIDE_TEXT_BYTES
        if isinstance(event, PartDelta):
            self._bytes += len(event.text)
            for one in event.logprobs or ():
                others = objects(one.get("top_logprobs"))
                self._bytes += _BESIDE_TEXT_BYTES * (1 + len(others))
        elif isinstance(event, CompletePart):
            self._bytes += len(msgspec.json.encode(event.value))
        elif isinstance(event, PartEnd) and event.signature is not None:
            self._bytes += len(event.signature.value)
        if self._bytes > self._most_bytes:
            raise AnswerTooLongError(
                f"the answer exceeds the {self._most_bytes:,} bytes that its last event may have"
            )
