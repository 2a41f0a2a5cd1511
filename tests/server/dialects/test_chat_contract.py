"""The server's own chat replies are what the gateway's reader of this API understands.

Chat completions have a writer of the server's own beside the one of protocol/dialects/openai_chat
(docs/architecture.md says why). Whole or streamed, what it writes of an answer is read as the
events that other dialects' replies are made of.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from headrace.conversation.reading import AnswerReading
from headrace.engine.messages import TokenLogprob
from headrace.protocol.dialects.openai_chat import CLIENT, PRESETS, OpenAIChatProvider
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import Event, ReplyEnd, ReplyStart
from headrace.protocol.neutral.part import Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply as NeutralAnswer
from headrace.protocol.openai.chat import ChatCompletionRequest, Message
from headrace.server.dialects.neutral_reply import NeutralReply
from headrace.server.generation.pieces import Piece
from headrace.server.replies.chat_reply import ChatReply
from headrace.server.replies.reply import Head, UsageEvents, encode
from headrace.text import Tokenizer
from tests.protocol.neutral.streams import assert_grammar, read_stream
from tests.server.dialects.conftest import CALLS, FORMAT, SAYS, SCHEMA, THINKS

PROVIDER = OpenAIChatProvider(PRESETS["headrace"])
READING = AnswerReading(FORMAT, {"look": SCHEMA}, reasoning_opened=False, kept_ids=frozenset())
HEAD = Head("chatcmpl-1", 1_700_000_000, "mock", "fp_1")
PROMPT = [1, 2, 3, 4, 5]
CUT_CALL = CALLS[: CALLS.index("ln")]

ANSWERS: dict[str, tuple[Sequence[str], AnswerReading | None, str, str | None]] = {
    "nothing": ([""], None, "stop", None),
    "text": (["plain é水"], None, "stop", None),
    "text in a model that could call": (["plain"], READING, "stop", None),
    "a stop string": (["plain"], None, "stop", "END"),
    "cut text": ([SAYS.strip()], READING, "length", None),
    "thoughts alone": ([THINKS], READING, "length", None),
    "all there is": ([THINKS + SAYS + CALLS + CALLS], READING, "stop", None),
    "a cut call": ([THINKS + CUT_CALL], READING, "length", None),
    "a call that broke": (["<tool_call>\n{bad"], READING, "stop", None),
    "two choices": ([THINKS + SAYS.strip(), CALLS], READING, "stop", None),
}


def _pieces(
    texts: Sequence[str], size: int, reason: str, stop: str | None, *, logprobs: bool
) -> list[tuple[int, Piece]]:
    """The pieces of all choices, which take turns; tokens are bytes."""
    cut = [[text[at : at + size] for at in range(0, len(text), size)] or [""] for text in texts]
    made = []
    for turn in range(max(map(len, cut))):
        for index, parts in enumerate(cut):
            if turn >= len(parts):
                continue
            ids = [*parts[turn].encode()]
            told = [TokenLogprob(one, -0.5, 1, [(one, -0.5)]) for one in ids] if logprobs else ()
            is_last = turn == len(parts) - 1
            made.append(
                (
                    index,
                    Piece(
                        parts[turn],
                        ids,
                        told,
                        finish_reason=reason if is_last else None,
                        stop_reason=stop if is_last else None,
                        cached_tokens=2,
                    ),
                )
            )
    return made


def _ids() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"{next(numbers):032x}"


def _told(answer: NeutralAnswer) -> dict[str, Any]:
    """What a client acts on. Reasoning, text and calls are fields apart in this API, so how they
    alternate is not in it, and neither is an empty text."""
    choices = []
    for choice in answer.choices:
        parts = choice.parts
        choices.append(
            {
                "index": choice.index,
                "text": "".join(part.text for part in parts if isinstance(part, Text)),
                "reasoning": "".join(part.text for part in parts if isinstance(part, Thinking)),
                "calls": [
                    (part.id, part.name, part.arguments)
                    for part in parts
                    if isinstance(part, ToolCall)
                ],
                "others": [
                    part for part in parts if not isinstance(part, Text | Thinking | ToolCall)
                ],
                "finish": choice.finish,
                "stop": choice.stop_sequence,
            }
        )
    return {
        "id": answer.id,
        "model": answer.model,
        "created": answer.created_s,
        "usage": answer.usage,
        "choices": choices,
    }


def _assert_logprobs(own: NeutralAnswer, answer: NeutralAnswer, pieces: Any) -> None:
    """Of every token, where asked for. An event is of a part: those of tokens after the last part
    (the mark that ends a call) are in no event."""
    for choice, of_events in zip(own.choices, answer.choices, strict=True):
        told = sum(len(piece.logprobs) for index, piece in pieces if index == choice.index)
        assert len(choice.logprobs or []) == told
        known = of_events.logprobs or []
        assert known == (choice.logprobs or [])[: len(known)]
        assert known or not told or not of_events.parts


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("name", ANSWERS)
def test_its_replies_are_read_as_the_events_of_the_answer(
    tokenizer: Tokenizer, name: str, size: int, logprobs: bool
) -> None:
    texts, reading, reason, stop = ANSWERS[name]
    pieces = _pieces(texts, size, reason, stop, logprobs=logprobs)
    request = ChatCompletionRequest(
        messages=[Message(role="user", content="x")],
        n=len(texts),
        logprobs=logprobs,
        top_logprobs=1,
    )
    call = ChatCall(
        dialect="openai",
        messages=(),
        model="mock",
        choices=len(texts),
        logprobs=logprobs,
        stream_usage=True,
    )

    def own(usage: UsageEvents) -> ChatReply:
        return ChatReply(HEAD, request, PROMPT, tokenizer, usage, reading, new_id=_ids())

    neutral = NeutralReply(CLIENT, call, HEAD, PROMPT, reading, tokenizer=tokenizer, new_id=_ids())
    made: list[Event] = [event for index, piece in pieces for event in neutral._take(index, piece)]
    made += neutral._last()
    answer = collected("headrace", made)
    expected = _told(answer)

    streamed = own(UsageEvents(last=True))
    raw = b"".join(event for index, piece in pieces for event in streamed.events(index, piece))
    raw += b"".join(streamed.last_events())
    read = read_stream(PROVIDER.stream_reader(call), raw)
    assert_grammar(read)
    assert isinstance(read[0], ReplyStart) and isinstance(read[-1], ReplyEnd)
    assert _told(collected("openai", read)) == expected
    _assert_logprobs(collected("openai", read), answer, pieces)

    whole = own(UsageEvents())
    for index, piece in pieces:
        whole.add(index, piece)
    body = encode(whole.whole())
    assert _told(PROVIDER.read_reply(body)) == expected
    _assert_logprobs(PROVIDER.read_reply(body), answer, pieces)

    # And so is what the dialect's writer makes of the same events, under the same names.
    written = CLIENT.write_reply(answer, call)
    assert _told(PROVIDER.read_reply(written)) == expected
    _assert_same_names(msgspec.json.decode(written), msgspec.json.decode(body))


_OF_ONE_WRITER = {"system_fingerprint", "stop_reason", "audio_tokens", "reasoning",
                  "completion_tokens_details"}  # fmt: skip
"""Fields of a serving engine (`stop_reason` where there is none, both names of reasoning, details
where answers are read), and of a gateway, whose providers count sound."""


def _assert_same_names(theirs: Any, ours: Any) -> None:
    """Both writers' objects have the same fields, in every place."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        assert theirs.keys() - _OF_ONE_WRITER == ours.keys() - _OF_ONE_WRITER
        for name in theirs.keys() & ours.keys():
            _assert_same_names(theirs[name], ours[name])
    elif isinstance(theirs, list) and isinstance(ours, list):
        # All choices, parts and calls: their number was compared. Log probabilities may be fewer.
        for pair in zip(theirs, ours, strict=False):
            _assert_same_names(*pair)
