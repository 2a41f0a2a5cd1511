"""return_progress: a stream says how much of a long prompt is computed, before its first text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from headrace.engine.messages import Output, Prefill, Submit
from tests.server.chat.test_chat import HELLO, HELLO_IDS
from tests.server.conftest import Running, events_of
from tests.server.mock_engine import MockEngine, output, prompt_logprobs
from tests.tiny import EOS

Start = Callable[..., Running]
CHAT = "/v1/chat/completions"
both = pytest.mark.parametrize(
    ("path", "body", "total"),
    [(CHAT, {"messages": HELLO}, len(HELLO_IDS)), ("/v1/completions", {"prompt": "xyz"}, 3)],
    ids=["chat", "completions"],
)


async def long_prefill(submit: Submit) -> AsyncIterator[Output]:
    """Three steps for the prompt, as an engine reports them, then a letter."""
    if submit.report_prefill:
        for computed in (1, 2):
            yield Output(submit.request_id, [], prefill=Prefill(computed, 1, 0.25 * computed))
    yield output(submit, [*b"a"], None, 1, prompt_logprobs=prompt_logprobs(submit))
    yield output(submit, [EOS], "stop", 1)


def progress_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event["prompt_progress"] for event in events if "prompt_progress" in event]


@both
@pytest.mark.parametrize("more", [{}, {"n": 2}, {"prompt_logprobs": 0}, {"return_token_ids": True}])
def test_it_comes_before_the_text(
    start: Start, path: str, body: Any, total: int, more: dict[str, Any]
) -> None:
    server = start(MockEngine(long_prefill))
    reply = server.post(path, {**body, **more, "stream": True, "return_progress": True})
    events = events_of(reply)
    assert progress_of(events) == [
        {"index": 0, "total": total, "cache": 1, "processed": 1, "time_ms": 250},
        {"index": 0, "total": total, "cache": 1, "processed": 2, "time_ms": 500},
    ]
    told = [event for event in events if "prompt_progress" in event]
    assert all(event["choices"] == [] for event in told)
    assert {event["id"] for event in events} == {events[0]["id"]}
    rest = [event for event in events if "prompt_progress" not in event]
    without = events_of(server.post(path, {**body, **more, "stream": True}))
    assert sorted(str(event["choices"]) for event in rest) == sorted(
        str(event["choices"]) for event in without
    )


@both
def test_nothing_comes_unasked(start: Start, path: str, body: Any, total: int) -> None:
    server = start(MockEngine(long_prefill))
    events = events_of(server.post(path, {**body, "stream": True}))
    assert events and progress_of(events) == []


def test_each_prompt_has_its_own(start: Start) -> None:
    server = start(MockEngine(long_prefill))
    body = {"prompt": ["xyz", "xyzw"], "n": 2, "stream": True, "return_progress": True}
    told = progress_of(events_of(server.post("/v1/completions", body)))
    assert sorted((event["index"], event["total"], event["processed"]) for event in told) == [
        (0, 3, 1), (0, 3, 2), (1, 4, 1), (1, 4, 2),
    ]  # fmt: skip


@both
def test_only_a_stream_has_it(start: Start, path: str, body: Any, total: int) -> None:
    server = start(MockEngine(long_prefill))
    reply = server.post(path, {**body, "return_progress": True})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "return_progress")
    assert server.post(path, {**body, "return_progress": False}).status_code == 200


def test_with_usage_in_every_event(start: Start) -> None:
    server = start(MockEngine(long_prefill))
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"messages": HELLO, "stream": True, "stream_options": options, "return_progress": True}
    first, *_, last = events_of(server.post(CHAT, body))
    assert first["prompt_progress"]["processed"] == 1
    assert (first["usage"]["completion_tokens"], last["usage"]["completion_tokens"]) == (0, 2)
