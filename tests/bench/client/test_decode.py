"""Records from bytes: what is said of broken replies, and what is kept of them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.bench.client.answer_text import AnswerText
from headrace.bench.client.decode import Asked, decode
from headrace.bench.record import Failure, RequestRecord
from tests.bench.client.events import STOP, delta, sse
from tests.bench.client.wire import MS, raw_reply, record_of

GOOD = sse(delta(content="a"), delta(content="b"), STOP)


@pytest.mark.parametrize(
    ("pieces", "fields", "kind", "told"),
    [
        ([b"<html>hello"], {}, "protocol", "HTML in place of a stream of events"),
        ([b"x"], {"content_type": "text/html"}, "protocol", "HTML in place of"),
        ([b"hello"], {"content_type": "text/plain"}, "protocol", "no event in 5 bytes of text/pl"),
        ([], {}, "protocol", "there is no event in 0 bytes of text/event-stream"),
        ([*GOOD[:2], b"data: {oops\n\n"], {}, "protocol", "event 3 is not JSON"),
        ([b"data: [1]\n\n"], {}, "protocol", "event 1 is JSON, but not an object"),
        ([b'{"choices":[]}'], {"content_type": "application/json"}, "protocol", "does not stream"),
        (
            [b'{"error":{"message":"no model"}}'],
            {"content_type": "application/json"},
            "stream",
            "the server reported: no model",
        ),
        (
            GOOD,
            {"headers": {"content-encoding": "gzip"}},
            "protocol",
            "the reply is compressed (gzip)",
        ),
        (GOOD[:2], {}, "truncated", "the stream ended after 2 events, unfinished"),
        (
            [*GOOD[:1], *sse({"error": {"message": "out of\nmemory", "code": 500}})],
            {},
            "stream",
            "the server reported: out of memory",
        ),
        (
            GOOD[:1],
            {"status": 404},
            "http",
            "HTTP 404, there is no such path or no such model",
        ),
        (
            [b'{"object":"error","message":"too long"}'],
            {"status": 400},
            "http",
            "HTTP 400: too long",
        ),
        (
            [],
            {"status": 307, "headers": {"location": "https://u:p@h/v2?k=1"}},
            "http",
            "HTTP 307, redirect to https://h/v2, use that address",
        ),
    ],
)
def test_failures(pieces: list[bytes], fields: dict[str, Any], kind: str, told: str) -> None:
    record = record_of(raw_reply(*pieces, **fields))
    assert record.failure is not None
    assert record.failure.kind == kind
    assert told in record.failure.message
    assert "\n" not in record.failure.message


def test_what_came_before_a_failure_is_kept() -> None:
    broken = [*GOOD[:2], b"data: {oops\n\n"]
    assert len(record_of(raw_reply(*broken)).chunks) == 2
    late = Failure("timeout", "the reply was not complete after 1 s")
    record = record_of(raw_reply(*GOOD[:2], complete=False, failure=late, end_ns=99 * MS))
    assert (len(record.chunks), record.failure, record.end_ns) == (2, late, 99 * MS)


def test_a_stream_that_says_its_end_is_whole_however_the_connection_ended() -> None:
    lost = Failure("truncated", "the connection was reset after 99 bytes of reply")
    raw = raw_reply(*GOOD, *sse("[DONE]"), complete=False, failure=lost, end_ns=500 * MS)
    record = record_of(raw)
    assert (record.failure, record.end_ns) == (None, 4 * MS)
    # With a reason but no last word, usage may be missing: the loss counts.
    assert record_of(raw_reply(*GOOD, complete=False, failure=lost)).failure == lost


def test_a_request_that_was_never_sent() -> None:
    refused = Failure("connect", "h:1 refused the connection")
    raw = raw_reply(status=None, sent_ns=None, headers_ns=None, complete=False, failure=refused)  # type: ignore[arg-type]
    record = record_of(raw)
    assert (record.failure, record.sent_ns, record.headers_ns) == (refused, None, None)


def test_times_count_from_the_start_of_the_run_and_labels_are_kept() -> None:
    raw = raw_reply(*GOOD, begun_ns=MS, sent_ns=2 * MS, headers_ns=3 * MS, new_connection=True)
    asked = Asked(index=7, intended_ns=-5, measured=False, session=2, turn=3)
    record = decode(raw, asked, kind="openai-chat", stream=True, origin_ns=MS)
    assert (record.begun_ns, record.sent_ns, record.headers_ns) == (0, MS, 2 * MS)
    assert [chunk.at_ns for chunk in record.chunks] == [0, MS, 2 * MS]
    assert (record.index, record.measured, record.session) == (7, False, 2)
    assert (record.turn, record.intended_ns) == (3, -5)
    assert record.new_connection


def test_no_secret_in_an_answer() -> None:
    key = "sk-proj-0123456789"
    pieces = sse(
        delta(content=f"it is {key}"),
        delta(reasoning=key[:9]),
        delta(reasoning=key[9:]),
        {"choices": [{"delta": {}, "finish_reason": key}]},
        STOP,
    )
    asked = Asked(index=0, intended_ns=0)
    raw = raw_reply(*pieces)
    record = decode(raw, asked, kind="openai-chat", stream=True, origin_ns=0, secrets=(key,))
    assert key[:9] not in str(record) and key[9:] not in str(record)
    assert [chunk.text for chunk in record.content] == ["it is ********", "********", "********"]
    plain = decode(raw, asked, kind="openai-chat", stream=True, origin_ns=0)
    assert plain.content[0].text == f"it is {key}"


def test_no_secret_in_a_message() -> None:
    key = "sk-proj-abcdefgh12345678"
    said = f"Incorrect API key provided: sk-proj-****5678. You sent {key}, Bearer {key}."
    body = json.dumps({"error": {"message": said}}).encode()
    raw = raw_reply(body, status=401)
    asked = Asked(index=0, intended_ns=0)
    record = decode(raw, asked, kind="openai-chat", stream=True, origin_ns=0, secrets=(key,))
    assert record.failure is not None
    assert "sk-proj" not in record.failure.message
    assert "5678" not in record.failure.message
    assert record.failure.message.startswith("HTTP 401, the key is missing or wrong: Incorrect")


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    raw = raw_reply(b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n', *sse(STOP))
    record = record_of(raw)
    assert record.failure is None
    assert record.chunks[0].text == "a\ufffd"


def test_bytes_that_are_no_utf_8_become_the_replacement_character_in_lines_too() -> None:
    raw = raw_reply(b'{"message":{"content":"a\xff"}}\n', b'{"done":true}\n', content_type="x/y")
    record = record_of(raw, "ollama")
    assert record.failure is None
    assert record.chunks[0].text == "a\ufffd"
    answer = AnswerText(raw, "ollama")  # what the next turn of a conversation is made of
    assert list(answer.steps()) == []
    assert answer.text == "a\ufffd"


@pytest.mark.parametrize("stream", [True, False])
def test_however_deep_an_error_is_nested_it_is_a_failure(stream: bool) -> None:
    for depth in range(900, 1001):  # the deepest that JSON is read to depends on the caller
        body = b'{"error":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
        raw = raw_reply(b"data: %b\n\n" % body if stream else body, content_type="x/y")
        failure = record_of(raw, stream=stream).failure
        assert failure is not None and failure.kind in ("stream", "protocol")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "content",
                    "usage",
                    "error",
                    "message",
                    "type",
                    "tool_calls",
                    "function",
                    "done",
                    "completion_tokens",
                    "metrics",
                    "queue_s",
                    "mock_sent_ns",
                    "token_ids",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
KINDS = st.sampled_from(
    ["openai-chat", "openai-completions", "openai-embeddings", "anthropic-messages", "ollama"]
)


@pytest.mark.long
@given(kind=KINDS, values=st.lists(JSON, max_size=4), stream=st.booleans())
def test_no_json_is_too_strange(kind: str, values: list[Any], stream: bool) -> None:
    texts = [json.dumps(value).encode() for value in values]
    if stream:
        texts = [text + b"\n" if kind == "ollama" else b"data: %b\n\n" % text for text in texts]
    record = record_of(raw_reply(*texts, content_type="x/y"), kind, stream=stream)
    assert record.failure is None or record.failure.message.isprintable()
    assert msgspec.json.decode(msgspec.json.encode(record), type=RequestRecord) == record


@given(kind=KINDS, body=st.binary(max_size=200), stream=st.booleans(), status=st.integers(200, 599))
def test_no_bytes_are_too_strange(kind: str, body: bytes, stream: bool, status: int) -> None:
    record = record_of(raw_reply(body, status=status), kind, stream=stream)
    assert record.failure is None or record.failure.message.isprintable()
