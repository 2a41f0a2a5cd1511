"""What a request asks of its reply: usage, metrics, names of tokens, and an end in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace.config import ServerConfig
from headrace.engine.messages import Output, Submit
from headrace.server.prompts.plan import time_left_s
from tests.server.chat.test_chat import HELLO, HELLO_IDS
from tests.server.conftest import MODEL, Running, events_of
from tests.server.mock_engine import MockEngine, output, says
from tests.server.replies.test_choices import streamed, words
from tests.tiny import EOS

Start = Callable[..., Running]
CHAT = "/v1/chat/completions"
both = pytest.mark.parametrize(
    ("path", "body"),
    [(CHAT, {"messages": HELLO}), ("/v1/completions", {"prompt": "x"})],
    ids=["chat", "completions"],
)


@both
@pytest.mark.parametrize("n", [1, 3])
def test_continuous_usage_is_that_of_what_has_come(
    start: Start, path: str, body: Any, n: int
) -> None:
    server = start(MockEngine(words))
    options = {"include_usage": True, "continuous_usage_stats": True}
    *events, last = events_of(
        server.post(path, {**body, "n": n, "stream": True, "stream_options": options})
    )
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == sorted(counts)
    assert counts[0] >= 1
    assert events[-1]["usage"] == last["usage"]
    assert last["choices"] == []
    prompt_tokens = len(HELLO_IDS) if path == CHAT else 1
    assert {event["usage"]["prompt_tokens"] for event in [*events, last]} == {prompt_tokens}


@both
def test_continuous_usage_without_a_last_event(start: Start, path: str, body: Any) -> None:
    options = {"continuous_usage_stats": True}
    server = start(MockEngine(says("ab")))
    events = events_of(server.post(path, {**body, "stream": True, "stream_options": options}))
    assert all(event["choices"] for event in events)
    assert events[-1]["usage"]["completion_tokens"] == 3


@both
@pytest.mark.parametrize("options", [None, {"include_usage": False}, {"include_usage": True}])
def test_a_server_may_end_every_stream_with_usage(
    start: Start, path: str, body: Any, options: Any
) -> None:
    server = start(MockEngine(says("ab")), config=ServerConfig(enable_force_include_usage=True))
    request = {**body, "stream": True, "stream_options": options}
    *events, last = events_of(server.post(path, request))
    assert all(event["usage"] is None for event in events)
    assert last["usage"]["completion_tokens"] == 3


METRICS = {
    "queue_s", "prefill_s", "ttft_s", "decode_s", "e2e_s", "output_tokens_per_s", "cached_tokens",
    "cache_miss", "num_preemptions", "draft_tokens", "accepted_draft_tokens",
}  # fmt: skip


async def measured(submit: Submit) -> AsyncIterator[Output]:
    yield Output(
        submit.request_id, [65], cached_tokens=16, queue_s=0.25, prefill_s=0.5,
        cache_miss="no_match at token 16",
    )  # fmt: skip
    await asyncio.sleep(0.02)
    yield Output(submit.request_id, [66, 67], num_preemptions=2, draft_tokens=5, accepted_tokens=1)
    yield Output(submit.request_id, [EOS], finish_reason="stop", num_preemptions=2)


@both
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 2])
def test_metrics_of_each_choice(start: Start, path: str, body: Any, stream: bool, n: int) -> None:
    server = start(MockEngine(measured))
    reply = server.post(path, {**body, "n": n, "stream": stream, "return_metrics": True})
    if stream:
        choices = [choice for event in events_of(reply) for choice in event["choices"]]
        assert all(("metrics" in one) == (one["finish_reason"] is not None) for one in choices)
        choices = [one for one in choices if "metrics" in one]
    else:
        choices = reply.json()["choices"]
    assert len(choices) == n
    for choice in choices:
        metrics = choice["metrics"]
        assert set(metrics) == METRICS
        assert (metrics["queue_s"], metrics["prefill_s"]) == (0.25, 0.5)
        assert metrics["cached_tokens"] == 16
        assert metrics["cache_miss"] == "no_match at token 16"
        assert metrics["num_preemptions"] == 2
        assert (metrics["draft_tokens"], metrics["accepted_draft_tokens"]) == (5, 1)
        assert 0 < metrics["ttft_s"] < metrics["e2e_s"]
        assert 0.01 < metrics["decode_s"] < metrics["e2e_s"]
        assert metrics["output_tokens_per_s"] == pytest.approx(3 / metrics["decode_s"])


@both
@pytest.mark.parametrize("stream", [False, True])
def test_usage_has_the_drafts_of_all_choices(
    start: Start, path: str, body: Any, stream: bool
) -> None:
    server = start(MockEngine(measured))
    asked = {**body, "n": 2, "stream": stream, "return_metrics": True}
    if stream:
        asked["stream_options"] = {"include_usage": True}
    reply = server.post(path, asked)
    usage = (events_of(reply)[-1] if stream else reply.json())["usage"]
    assert usage["completion_tokens_details"] == {"draft_tokens": 10, "accepted_draft_tokens": 2}
    assert usage["completion_tokens"] == 8


@both
def test_metrics_come_when_asked_for_and_not_otherwise(start: Start, path: str, body: Any) -> None:
    server = start(MockEngine(says("a")))
    for stream in (False, True):
        text = server.post(path, {**body, "stream": stream}).text
        assert "metrics" not in text and "draft" not in text


def test_metrics_of_a_request_that_said_nothing(start: Start) -> None:
    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield Output(submit.request_id, [], finish_reason="timeout")

    metrics = start(MockEngine(reply)).complete(return_metrics=True)["choices"][0]["metrics"]
    assert metrics["e2e_s"] > 0
    for name in ("prefill_s", "ttft_s", "decode_s", "output_tokens_per_s", "cache_miss"):
        assert metrics[name] is None


@both
@pytest.mark.parametrize("stream", [False, True])
def test_a_timeout_delivers_what_has_been_said(
    start: Start, path: str, body: Any, stream: bool
) -> None:
    """Held-back text too: "S" might have become a stop string."""

    async def reply(submit: Submit) -> AsyncIterator[Output]:
        yield output(submit, [*b"abS"])
        yield output(submit, [], "timeout")

    server = start(MockEngine(reply))
    request = {**body, "stream": stream, "stop": "STOP", "timeout_s": 5, "max_tokens": 9}
    answer = server.post(path, request)
    if stream:
        events = events_of(answer)
        text, reason = streamed(events, 0), events[-1]["choices"][0]["finish_reason"]
    else:
        choice = answer.json()["choices"][0]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        reason = choice["finish_reason"]
    assert (text, reason) == ("abS", "timeout")
    assert (
        server.metrics()[
            f'vllm:request_success_total{{engine="0",finished_reason="timeout",model_name="{MODEL}"}}'
        ]
        == 1
    )


@pytest.mark.parametrize(
    ("asked", "limit", "spent", "left"),
    [
        (None, None, 3.0, None),
        (10.0, None, 3.0, 7.0),
        (None, 10.0, 3.0, 7.0),
        (5.0, 10.0, 3.0, 2.0),
        (20.0, 10.0, 3.0, 7.0),
    ],
)
def test_the_time_left(
    asked: float | None, limit: float | None, spent: float, left: float | None
) -> None:
    assert time_left_s(asked, limit, spent) == left


def test_time_that_is_over_is_a_deadline_at_once() -> None:
    left = time_left_s(1.0, None, 2.0)
    assert left is not None
    assert 0 < left < 1e-3


@both
def test_the_deadline_counts_from_the_arrival(start: Start, path: str, body: Any) -> None:
    engine = MockEngine(says("x"))
    server = start(engine, config=ServerConfig(request_timeout=50))
    server.post(path, body)
    server.post(path, {**body, "timeout_s": 20, "n": 2})
    server.post(path, {**body, "timeout_s": 100})
    times = [submit.timeout_s for submit in engine.submitted]
    for left, allowed in zip(times, [50, 20, 20, 50], strict=True):
        assert left is not None
        assert allowed - 5 < left < allowed
    start(engine).post(path, body)
    assert engine.submitted[-1].timeout_s is None


def test_tokens_as_their_ids(start: Start) -> None:
    server = start(MockEngine(says("é")))
    fields = {"return_tokens_as_token_ids": True}
    columns = server.complete(logprobs=1, **fields)["choices"][0]["logprobs"]
    assert columns["tokens"] == ["token_id:195", "token_id:169", f"token_id:{EOS}"]
    assert columns["top_logprobs"][0] == {"token_id:196": -9999.0, "token_id:195": -0.195}
    content = server.chat(logprobs=True, top_logprobs=1, **fields)["choices"][0]["logprobs"]
    first = content["content"][0]
    assert (first["token"], first["bytes"]) == ("token_id:195", [195])
    assert first["top_logprobs"][0]["token"] == "token_id:196"
