"""Bodies that are damaged or made to do harm."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.gemini import EMBEDDINGS, PROVIDER
from headrace.protocol.dialects.gemini.reply.stream_reader import GeminiStreamReader
from headrace.protocol.neutral.dialect import DamagedReplyError
from headrace.protocol.neutral.event import Event, ReplyFailure
from tests.protocol.dialects.gemini.samples import answer, stream
from tests.protocol.neutral.streams import assert_grammar, read_stream

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(["STOP", "AUDIO", "SAFETY", "12s", "image/png"]),
)
KEYS = st.sampled_from(
    ["candidates", "content", "parts", "text", "thought", "thoughtSignature", "functionCall",
     "name", "args", "id", "index", "finishReason", "usageMetadata", "promptTokenCount",
     "promptTokensDetails", "modality", "tokenCount", "promptFeedback", "blockReason",
     "inlineData", "mimeType", "data", "logprobsResult", "chosenCandidates", "topCandidates",
     "token", "logProbability", "error", "details", "responseId", "createTime", "embedding",
     "values", "predictions"]
)  # fmt: skip
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
# Damage deep inside of what is right so far.
ANSWERS = st.one_of(
    JSON,
    st.builds(lambda part: answer(part, finishReason="STOP"), st.dictionaries(KEYS, JSON)),
    st.builds(lambda one: {"candidates": [one]}, st.dictionaries(KEYS, JSON)),
    st.builds(lambda one: {**answer({"text": "a"}), **one}, st.dictionaries(KEYS, JSON)),
)


def stream_events(body: bytes) -> list[Event]:
    events = read_stream(GeminiStreamReader(), body)
    assert_grammar(events)
    return events


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(ANSWERS)
def test_any_json_is_an_answer_or_damaged(value: Any) -> None:
    body = json.dumps(value).encode()
    with contextlib.suppress(DamagedReplyError):
        PROVIDER.read_reply(body)
    with contextlib.suppress(DamagedReplyError):
        EMBEDDINGS.read_embeddings((body,))
    assert PROVIDER.read_failure(500, {}, body).message


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(ANSWERS, max_size=4))
def test_any_stream_of_json_keeps_the_grammar(values: list[Any]) -> None:
    stream_events(stream(*values))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_damaged(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_reply(body)
    assert isinstance(stream_events(b"data: " + body + b"\n\n")[-1], ReplyFailure)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"candidates": [1]}', b'{"candidates": {}}',
     b'{"candidates": [{"content": [1]}]}', b'{"candidates": [{"content": {"parts": {"a": 1}}}]}',
     b'{"candidates": [{"content": {"parts": ["x"]}}]}', b'{"candidates": [{"index": -1}]}',
     b'{"candidates": [{"index": 1e9}]}', b'{"candidates": [{"index": 99999999999}]}',
     b'{"candidates": [{"content": {"parts": [{"functionCall": {}}]}}]}',
     b'{"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": []}}]}}]}',
     b'{"candidates": []}', b'{"candidates": null}', b"\xff"],
)  # fmt: skip
def test_damaged_replies(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_reply(body)
    events = stream_events(b"data: " + body + b"\n\n")
    assert isinstance(events[-1], ReplyFailure)


def test_what_came_before_damage_in_one_piece_is_told() -> None:
    piece = answer({"text": "a"})
    piece["candidates"][0]["content"]["parts"].append("no part")
    names = [type(one).__name__ for one in stream_events(stream(piece))]
    assert names == ["ReplyStart", "PartStart", "PartDelta", "PartEnd", "ReplyFailure"]


def test_nothing_comes_after_a_failure() -> None:
    reader = GeminiStreamReader()
    assert isinstance(reader.feed(b"data: {\n\n")[-1], ReplyFailure)
    assert reader.feed(stream(answer({"text": "a"}, finishReason="STOP"))) == []
    assert reader.end() == []


def test_an_endless_event_is_not_held() -> None:
    reader = GeminiStreamReader(max_event_bytes=1000)
    events: list[Event] = []
    for _ in range(100):
        events += reader.feed(b"data: " + b"x" * 100)
    assert [type(one) for one in events] == [ReplyFailure]


def test_ever_new_choices_and_fields_are_not_held() -> None:
    many = [{"candidates": [{"index": at}]} for at in range(500)]
    assert isinstance(stream_events(stream(*many))[-1], ReplyFailure)
    for name in ("candidates", "usageMetadata", "promptFeedback"):
        fields = [
            {name: [{f"f{at}": at}] if name == "candidates" else {f"f{at}": at}}
            for at in range(500)
        ]
        events = read_stream(GeminiStreamReader(), stream(*fields))
        failed = events[-1]
        assert isinstance(failed, ReplyFailure)
        assert "64 fields" in failed.failure.message
