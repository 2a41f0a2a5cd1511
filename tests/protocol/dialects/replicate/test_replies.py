"""What Replicate answers: predictions, their streams, and errors."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.replicate import PROVIDER
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.dialect import DamagedReplyError, StreamReader
from headrace.protocol.neutral.event import ReplyFailure
from headrace.protocol.neutral.part import Text
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.replicate.samples import call, prediction
from tests.protocol.neutral.streams import assert_grammar, read_at_every_cut, read_stream


def reader() -> StreamReader:
    return PROVIDER.stream_reader(call())


@pytest.mark.parametrize("output", [["Hel", "lo"], "Hello"])
def test_an_answer(output: object) -> None:
    metrics = {"input_token_count": 7, "output_token_count": 2, "predict_time": 0.5}
    reply = PROVIDER.read_reply(prediction("succeeded", output=output, metrics=metrics))
    assert reply.choices[0].parts == (Text(text="Hello"),)
    assert reply.choices[0].finish == "stop"
    assert reply.usage == TokenUsage(input_tokens=7, output_tokens=2)
    assert reply.id == "2knutntbosoct6233zaqaieafa"
    assert reply.model == "meta/meta-llama-3-8b-instruct"
    assert reply.created_s == 1707756341
    assert reply.extra == {"replicate": {"metrics": metrics}}


@pytest.mark.parametrize(
    ("metrics", "usage"),
    [
        (None, None),
        ([], None),
        ({"predict_time": 1}, None),
        ({"input_token_count": "7", "output_token_count": -1}, None),
        ({"output_token_count": 3}, TokenUsage(output_tokens=3)),
    ],
)
def test_usage(metrics: object, usage: TokenUsage | None) -> None:
    reply = PROVIDER.read_reply(prediction("succeeded", metrics=metrics))
    assert reply.usage == usage
    assert reply.choices[0].parts == ()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 10**5,
        prediction("starting"),
        prediction("failed", error="CUDA out of memory"),
        prediction("canceled"),
        prediction("succeeded", output={"a": 1}),
        prediction("succeeded", output=[1]),
        prediction("succeeded", id="../x"),
        prediction("succeeded", id=""),
        prediction("succeeded", id=5),
    ],
    ids=lambda body: body[:9].decode(errors="replace") + str(len(body)),
)
def test_damage_is_told(body: bytes) -> None:
    with pytest.raises(DamagedReplyError):
        PROVIDER.read_reply(body)


_JSON = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
_NAMES = st.sampled_from(["output", "error", "metrics", "created_at", "urls", "status", "id"])


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.dictionaries(_NAMES, _JSON, max_size=4))
def test_a_prediction_is_read_or_damaged(fields: dict[str, Any]) -> None:
    body = prediction(**{"status": "succeeded"} | fields)
    with contextlib.suppress(DamagedReplyError):
        PROVIDER.read_reply(body)
    steps = PROVIDER.steps(call(stream=True), "a/b")
    steps.take(201, {}, body)
    steps.next_request()


STREAM = (
    ": hi\n\n"
    "event: output\nid: 1:0\ndata: \n\n"
    "event: output\nid: 1:1\ndata: Grü\n\n"
    "event: logs\ndata: 5 tokens\n\n"
    "event: output\nid: 1:2\ndata: ße\ndata: \ndata:  🜁\n\n"
)


def test_a_stream_at_every_cut() -> None:
    stream = (STREAM + "event: done\nid: 1:3\ndata: {}\n\n:408: 408 Request Timeout\n\n").encode()
    events = read_at_every_cut(reader, stream)
    assert_grammar(events)
    reply = collected("replicate", events)
    assert reply.choices[0].parts == (Text(text="Grüße\n\n 🜁"),)
    assert reply.choices[0].finish == "stop"
    assert read_at_every_cut(reader, stream.replace(b"\n", b"\r\n")) == events


@pytest.mark.parametrize(
    ("end", "kind", "message"),
    [
        ("event: error\ndata: CUDA out of memory\n\n", "server", "CUDA out of memory"),
        ('event: error\ndata: {"detail": "NSFW content"}\n\n', "content_policy", "NSFW content"),
        ('event: done\ndata: {"reason": "canceled"}\n\n', "server", "'canceled'"),
        ('event: done\ndata: {"reason": "error"}\n\n', "server", "'error'"),
        ("", "network", "event done"),
        ("event: done\ndata: {}", "network", "event done"),
    ],
)
def test_streams_that_end_badly(end: str, kind: str, message: str) -> None:
    events = read_at_every_cut(reader, (STREAM + end).encode())
    assert_grammar(events)
    assert isinstance(events[-1], ReplyFailure)
    assert events[-1].failure.kind == kind
    assert message in events[-1].failure.message


def test_an_error_at_once_is_no_beginning() -> None:
    (failed,) = read_stream(reader(), b"event: error\ndata: no\n\n")
    assert isinstance(failed, ReplyFailure)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["output", "error", "done", "logs", ""]), st.text(max_size=9)),
        max_size=6,
    )
)
def test_nothing_that_a_stream_says_raises(said: list[tuple[str, str]]) -> None:
    stream = "".join(f"event: {event}\ndata: {data}\n\n" for event, data in said)
    assert_grammar(read_stream(reader(), stream.encode()))


def failure(status: int, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    return PROVIDER.read_failure(status, headers or {}, json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("status", "fields", "kind"),
    [
        (401, {"title": "Unauthenticated", "detail": "no valid token"}, "authentication"),
        (402, {"title": "Insufficient credit"}, "payment"),
        (403, {}, "permission"),
        (404, {"detail": "The requested resource could not be found."}, "not_found"),
        (413, {}, "too_large"),
        (422, {"title": "Invalid version or not permitted"}, "bad_request"),
        (422, {"detail": "prompt length exceeds maximum input length"}, "context_length"),
        (429, {"detail": "Request was throttled."}, "rate_limit"),
        (500, {}, "server"),
        (503, {}, "overloaded"),
        (504, {}, "timeout"),
    ],
)
def test_kinds_of_errors(status: int, fields: dict[str, str], kind: str) -> None:
    assert failure(status, **fields).kind == kind


def test_what_else_an_error_tells() -> None:
    told = failure(
        422,
        {"X-Request-Id": "r1", "ratelimit-reset": "5"},
        title="Input validation failed",
        detail="- input: prompt is required\n",
        invalid_fields=[{"type": "required", "field": "input.prompt", "description": "x"}],
    )
    assert told.message == "Input validation failed: - input: prompt is required"
    assert (told.param, told.request_id, told.retry_after_s) == ("input.prompt", "r1", None)
    assert failure(429, {"ratelimit-reset": "5"}).retry_after_s == 5
    assert failure(429, {"retry-after": "2", "ratelimit-reset": "5"}).retry_after_s == 2
    assert failure(429, {"retry-after": "soon"}).retry_after_s is None
    for body in (b"", b"<html>", b"[]", b'{"invalid_fields":[5]}', b"[" * 10**5):
        assert PROVIDER.read_failure(500, {}, body).kind == "server"
