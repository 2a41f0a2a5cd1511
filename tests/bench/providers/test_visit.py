"""One provider's part of a round, against the mock."""

from __future__ import annotations

import asyncio
import socket
from itertools import pairwise
from typing import Any

import pytest

from headrace.bench.client.endpoints import Endpoint
from headrace.bench.client.prompt import Prompt
from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from headrace.bench.providers.prompts import RoundPrompts
from headrace.bench.providers.rows import request_row
from headrace.bench.providers.visit import Visit, Visitor
from headrace.bench.workload import WorkItem


def items(count: int) -> tuple[WorkItem, ...]:
    return tuple(
        WorkItem(prompt=Prompt(text=f"prompt {at}", max_tokens=4), output_tokens_asked=4)
        for at in range(count)
    )


def mock(**settings: Any) -> MockEndpoint:
    told = {"ttft_ms": 2, "tpot_ms": 1, **settings}
    return MockEndpoint(MockSettings(**told), keep_requests=100)


def visitor(url: str, **fields: Any) -> Visitor:
    told = {"kind": "openai-chat", "base_url": url, "model": "mock", **fields}
    return Visitor(Endpoint(**told), timeout_s=60)


async def visited(endpoint: MockEndpoint, single: int, batch: int, **fields: Any) -> Visit:
    async with endpoint as url:
        return await visitor(url, **fields).run(RoundPrompts(items(single), items(batch)))


async def test_one_after_another_and_then_all_at_once() -> None:
    endpoint = mock(ttft_ms=30)
    visit = await visited(endpoint, 3, 4)
    assert visit.outcome == "complete"
    assert all(one.failure is None for one in visit.records)
    ends = [(one.sent_ns, one.end_ns) for one in visit.single]
    for (_, end_ns), (sent_ns, _) in pairwise(ends):
        assert end_ns is not None
        assert sent_ns is not None
        assert end_ns <= sent_ns
    # Everything of the batch was sent before the first of it was answered.
    sent = [one.sent_ns for one in visit.batch if one.sent_ns is not None]
    assert max(sent) < min(one.end_ns for one in visit.batch if one.end_ns is not None)
    assert min(sent) >= max(one.end_ns for one in visit.single if one.end_ns is not None)
    # Connections are made before: no request waits for one.
    assert not any(one.new_connection for one in visit.single[1:])
    row = request_row("single", visit.single[0])
    assert row.output_tokens == 4
    assert row.ttft_ns is not None
    assert row.ttft_ns >= 29e6
    assert row.characters > row.first_characters > 0


async def test_a_refused_key_is_shown_once_and_ends_the_visit() -> None:
    endpoint = mock(api_key="right")
    visit = await visited(endpoint, 3, 4, api_key="wrong-key-0123456789")
    assert visit.outcome == "refused"
    assert len(visit.records) == 1
    assert endpoint.outcomes == {"unauthorized": 1}
    assert visit.message.startswith("HTTP 401")
    assert "wrong-key" not in visit.message


async def test_who_does_not_answer_is_asked_once() -> None:
    visit = await visitor("http://127.0.0.1:1").run(RoundPrompts(items(3), items(4)))
    assert visit.outcome == "unreachable"
    assert len(visit.records) == 1
    assert "refused the connection" in visit.message


async def test_without_one_success_there_is_no_batch() -> None:
    endpoint = mock(errors=(("503", 1.0),))
    visit = await visited(endpoint, 3, 4)
    assert visit.outcome == "failing"
    assert len(visit.records) == 3
    assert endpoint.outcomes == {"503": 3}


async def test_failures_among_successes_are_kept() -> None:
    visit = await visited(mock(errors=(("truncated", 0.5),), seed=3), 6, 6)
    failed = [one for one in visit.records if one.failure is not None]
    assert 0 < len(failed) < 12
    assert visit.outcome == "complete"
    assert request_row("single", failed[0]).ttft_ns is None


@pytest.mark.parametrize("at_once", [False, True])
async def test_stopping_keeps_what_ended_and_cuts_what_did_not(at_once: bool) -> None:
    endpoint = mock(ttft_ms=2, tpot_ms=3_600_000)
    async with endpoint as url:
        of = visitor(url)
        prompts = RoundPrompts(items(1), items(2))
        if at_once:
            short = WorkItem(prompt=Prompt(text="short", max_tokens=1))
            prompts = RoundPrompts((short,), items(2))
        task = asyncio.create_task(of.run(prompts))
        wanted = 3 if at_once else 1
        while len(endpoint.received) < wanted:
            await asyncio.sleep(0.005)
        of.stop()
        visit = await task
    assert visit.outcome == "interrupted"
    cut = [one for one in visit.records if one.failure and one.failure.kind == "cancelled"]
    assert len(cut) == (2 if at_once else 1)
    assert len(visit.records) == len(cut) + at_once


async def test_stopped_before_it_began_it_sends_nothing() -> None:
    endpoint = mock()
    async with endpoint as url:
        of = visitor(url)
        of.stop()
        visit = await of.run(RoundPrompts(items(1), items(1)))
    assert (visit.outcome, visit.records) == ("interrupted", ())
    assert not endpoint.received


async def test_stopping_does_not_wait_for_a_connection() -> None:
    # Nobody takes connections of a listener whose queue is full, so connecting hangs.
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port = listener.getsockname()[1]
    fillers = [socket.socket() for _ in range(4)]
    for one in fillers:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    of = visitor(f"http://127.0.0.1:{port}")
    task = asyncio.create_task(of.run(RoundPrompts(items(1), items(1))))
    await asyncio.sleep(0.05)
    assert not task.done()
    of.stop()
    visit = await asyncio.wait_for(task, 5)
    assert visit.outcome == "interrupted"
    for one in (*fillers, listener):
        one.close()
