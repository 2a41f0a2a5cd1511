"""The requests that one answer takes, in their order."""

from __future__ import annotations

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.replicate import PROVIDER, ReplicateSteps
from headrace.protocol.neutral.collect import collected
from headrace.protocol.neutral.event import Event, ReplyEnd, ReplyFailure, ReplyUsage
from headrace.protocol.neutral.part import Text
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.replicate.samples import STREAM, call, prediction
from tests.protocol.neutral.streams import assert_grammar

MODEL = "meta/meta-llama-3-8b-instruct"
METRICS = {"input_token_count": 7, "output_token_count": 2}
DONE = prediction("succeeded", output=["Hel", "lo"], metrics=METRICS)
GET = "/v1/predictions/2knutntbosoct6233zaqaieafa"
BODY = b"event: output\ndata: Hel\n\nevent: output\ndata: lo\n\nevent: done\ndata: {}\n\n"


def steps(stream: bool = False) -> ReplicateSteps:
    return PROVIDER.steps(call(stream=stream), MODEL)


def drive(steps: ReplicateSteps, *answers: bytes | int) -> tuple[list[str], list[Event]]:
    """What was asked, and the events. A number stands for an error with that status."""
    asked: list[str] = []
    events: list[Event] = []
    left = list(answers)
    while (ask := steps.next_request()) is not None:
        assert steps.next_request() == ask
        asked.append(ask.url or ask.path)
        answer = left.pop(0)
        if isinstance(answer, int):
            events += steps.take(answer, {}, b'{"detail":"no"}')
        elif ask.streams:
            for at in range(len(answer)):
                events += steps.feed(answer[at : at + 1])
            events += steps.end_of_body()
        else:
            events += steps.take(201 if ask.method == "POST" else 200, {}, answer)
    assert not left
    assert_grammar(events)
    return asked, events


def assert_whole(events: list[Event]) -> None:
    reply = collected("replicate", events)
    assert isinstance(events[-1], ReplyEnd)
    assert reply.choices[0].parts == (Text(text="Hello"),)
    assert reply.choices[0].finish == "stop"
    assert reply.usage == TokenUsage(input_tokens=7, output_tokens=2)
    assert reply.id == "2knutntbosoct6233zaqaieafa"


def test_an_answer_that_was_waited_for_is_one_request() -> None:
    asked, events = drive(steps(), DONE)
    assert asked == [f"/v1/models/{MODEL}/predictions"]
    assert_whole(events)


def test_a_slow_answer_is_asked_for_again_and_again() -> None:
    running = prediction("processing", output=["Hel"])
    asked, events = drive(steps(), prediction("starting"), running, running, DONE)
    assert asked == [f"/v1/models/{MODEL}/predictions", GET, GET, GET]
    assert_whole(events)


def test_pauses_grow_to_their_bound() -> None:
    driven = steps()
    driven.take(201, {}, prediction("starting"))
    pauses = []
    for _ in range(9):
        ask = driven.next_request()
        assert ask is not None
        pauses.append(ask.after_s)
        driven.take(200, {}, prediction("processing"))
    assert pauses[:3] == [0.5, 0.75, 1.125]
    assert pauses[-1] == 5


def test_a_stream_is_read_and_then_its_usage() -> None:
    asked, events = drive(steps(stream=True), prediction("starting"), BODY, DONE)
    assert asked == [f"/v1/models/{MODEL}/predictions", STREAM, GET]
    assert_whole(events)


def test_usage_is_waited_for_a_little_and_missed_without_harm() -> None:
    running = prediction("processing")
    _, events = drive(steps(stream=True), prediction("starting"), BODY, running, DONE)
    assert_whole(events)
    for late in ((running, running, running), (500,), (b"garbage",), (prediction("succeeded"),)):
        _, events = drive(steps(stream=True), prediction("starting"), BODY, *late)
        assert isinstance(events[-1], ReplyEnd)
        assert not any(isinstance(one, ReplyUsage) for one in events)


@pytest.mark.parametrize(
    "url",
    [
        None,
        5,
        "",
        "http://stream.replicate.com/x",
        "https://evil.example/x",
        "https://replicate.com.evil.example/x",
        "https://evilreplicate.com/x",
        "https://user@stream.replicate.com/x",
        "https://[bad/x",
    ],
)
def test_streams_elsewhere_are_not_followed(url: object) -> None:
    created = prediction("starting", urls={"stream": url})
    asked, events = drive(steps(stream=True), created, DONE)
    assert asked == [f"/v1/models/{MODEL}/predictions", GET]
    assert_whole(events)


def test_a_stream_that_is_gone_is_polled() -> None:
    asked, events = drive(steps(stream=True), prediction("starting"), 404, DONE)
    assert asked[1:] == [STREAM, GET]
    assert_whole(events)


@pytest.mark.parametrize("stream", [False, True])
def test_failures(stream: bool) -> None:
    failed = prediction("failed", error="CUDA out of memory")
    for answers in ([failed], [402], [b"garbage"], [prediction("starting", id="a/b")]):
        asked, events = drive(steps(stream), *answers)
        assert len(asked) == len(events) == 1
        assert isinstance(events[0], ReplyFailure)
    _, events = drive(steps(), prediction("starting"), prediction("failed", error="NSFW"))
    assert isinstance(events[0], ReplyFailure)
    assert events[0].failure.kind == "content_policy"
    _, events = drive(steps(), prediction("starting"), prediction("succeeded", id="other"))
    assert isinstance(events[0], ReplyFailure)
    assert events[0].failure.kind == "damaged"


def test_a_prediction_is_not_given_up_for_a_bad_moment() -> None:
    _, events = drive(
        steps(), prediction("starting"), 502, 429, prediction("processing"), 503, DONE
    )
    assert_whole(events)
    _, events = drive(steps(), prediction("starting"), 502, 502, 502, 502)
    assert isinstance(events[0], ReplyFailure)
    _, events = drive(steps(), prediction("starting"), 401)
    assert isinstance(events[0], ReplyFailure)


def test_what_runs_can_be_cancelled() -> None:
    driven = steps(stream=True)
    assert driven.cancel_request() is None
    driven.take(201, {}, prediction("starting"))
    cancel = driven.cancel_request()
    assert cancel is not None
    assert (cancel.method, cancel.path) == ("POST", f"{GET}/cancel")
    driven.feed(BODY[:20])
    driven.end_of_body()
    assert driven.next_request() is None
    assert driven.cancel_request() == cancel
    for answers in ((DONE,), (prediction("starting"), DONE)):
        done = steps()
        drive(done, *answers)
        assert done.cancel_request() is None
        assert done.take(200, {}, DONE) == []
        assert done.feed(BODY) == done.end_of_body() == []


def test_what_cannot_be_asked_is_told_at_once() -> None:
    with pytest.raises(RequestError):
        PROVIDER.steps(call(), "no model")
    assert PROVIDER.steps(call(min_p=0.1), MODEL).dropped == ("min_p",)
