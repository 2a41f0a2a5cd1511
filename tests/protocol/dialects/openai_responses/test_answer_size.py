"""What a stream's writer keeps of an answer is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.dialects.openai_responses import CLIENT
from headrace.protocol.dialects.openai_responses.reply.stream_writer import AnswerSize
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import AnswerTooLongError
from headrace.protocol.neutral.event import (
    CompletePart,
    PartDelta,
    PartEnd,
    PartStart,
    ReplyFailure,
    ReplyStart,
)
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.part import Media, Signature

TOKEN: dict[str, Any] = {"token": "a", "logprob": -0.1, "top_logprobs": [{"token": "b"}] * 9}
GREW = PartDelta(choice=0, part=0, text="a")


@pytest.mark.parametrize(
    "event",
    [
        GREW,
        PartDelta(choice=0, part=0, text="", logprobs=[TOKEN]),
        PartStart(choice=0, part=0, kind="text"),
        PartEnd(choice=0, part=0, signature=Signature("openai", "s" * 99)),
        CompletePart(choice=0, part=0, value=Media(kind="image", mime="image/png", data="A" * 99)),
    ],
)
def test_an_answer_without_end_is_too_long(event: Any) -> None:
    kept = AnswerSize(10_000)
    with pytest.raises(AnswerTooLongError, match="10,000 bytes"):
        for _ in range(1000):
            kept.take(event)


def test_each_piece_counts_with_what_it_takes_beside_its_text() -> None:
    kept = AnswerSize(65 * 4)
    for _ in range(4):
        kept.take(GREW)
    with pytest.raises(AnswerTooLongError):
        kept.take(GREW)


def test_a_stream_that_is_too_long_ends_as_failed() -> None:
    call = ChatCall(dialect="openai-responses", model="m", messages=(), stream=True)
    writer = CLIENT.stream_writer(call)
    long = PartDelta(choice=0, part=0, text="a" * 2**24)
    for event in (ReplyStart(id="x", model="m"), PartStart(choice=0, part=0, kind="text")):
        writer.write(event)
    with pytest.raises(AnswerTooLongError) as raised:
        for _ in range(5):
            writer.write(long)
    told = writer.write(ReplyFailure(Failure(kind="damaged", message=str(raised.value))))
    assert told.startswith(b"event: response.failed\n") and b"67,108,864 bytes" in told
    assert writer.write(GREW) == b""
