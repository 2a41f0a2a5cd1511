"""What is done before the run: requests are made, shares are handed out, traces are bounded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.bench.client.endpoints import HttpRequest, build_request
from headrace.bench.client.prompt import Prompt
from headrace.bench.load import prepared as prepared_module
from headrace.bench.load import prompt_options, workers
from headrace.bench.load.client_run import ClientJob
from headrace.bench.load.conversations import Conversation, conversations
from headrace.bench.load.frames import Ready, Start, read_to_client, send
from headrace.bench.load.plan import LoadPlan, closed_plan
from headrace.bench.load.prepared import Prepared
from headrace.bench.load.prompt_options import PromptOptions, make_requests
from headrace.bench.load.runner import _BURST
from headrace.bench.load.tokenization import load_tokenization
from headrace.bench.load.workers import Workers
from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from headrace.bench.traces.replay import TraceReplay
from headrace.bench.workload import WorkItem
from headrace.errors import ConfigError
from tests.bench.load.helpers import QUICK, endpoint, make_runner, singles, talk

AT = endpoint("http://127.0.0.1:1")


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Prompt]:
    """Prompts whose JSON was written."""
    seen: list[Prompt] = []

    def noted(at: Any, prompt: Prompt) -> HttpRequest:
        seen.append(prompt)
        return build_request(at, prompt)

    monkeypatch.setattr(prepared_module, "build_request", noted)
    return seen


def test_requests_are_made_once_and_before_they_are_asked_for(built: list[Prompt]) -> None:
    workload = [*singles(3), *conversations(talk(1, 2))]
    prepared = Prepared(AT)
    prepared.make(workload)
    assert len(built) == 4  # the second turn waits for an answer
    for turns in workload:
        assert prepared.of(turns[0]) == build_request(AT, turns[0].prompt)
    assert len(built) == 4
    prepared.make(workload)
    assert len(built) == 4
    assert prepared.of(workload[3][1]).stream
    assert len(built) == 5


def test_what_is_made_before_is_bounded(built: list[Prompt]) -> None:
    workload = singles(50)
    size = len(build_request(AT, workload[0][0].prompt).data)
    prepared = Prepared(AT, most_bytes=4 * size)
    prepared.make(workload)
    assert len(built) == 5
    for (item,) in workload:
        assert prepared.of(item) == build_request(AT, item.prompt)


def test_a_prompt_that_cannot_be_sent_says_so_when_it_is(built: list[Prompt]) -> None:
    bad = WorkItem(prompt=Prompt(token_ids=(1, 2)))
    prepared = Prepared(AT)
    prepared.make(conversations([bad]))
    with pytest.raises(ConfigError, match="text or messages"):
        prepared.of(bad)


async def test_a_run_writes_no_json(built: list[Prompt]) -> None:
    async with MockEndpoint(MockSettings(**QUICK)) as url:
        plan = closed_plan(2, requests=8, warmup_requests=2)
        runner = make_runner(url, plan, singles(8), singles(2, "warm"))
        runner.prepare()
        before = len(built)
        records = await runner.run()
        await runner.client.close()
    assert before == 10
    assert len(built) == 10
    assert [one.failure for one in records] == [None] * 10


async def test_all_at_once_is_sent_in_bursts_that_leave_the_loop_rounds() -> None:
    count = 5 * _BURST
    plan = LoadPlan(kind="open", times_ns=(0,) * count, requests=count)
    in_round: dict[int, int] = {}
    rounds = 0

    async def tick() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    async with MockEndpoint(MockSettings(**QUICK)) as url:
        runner = make_runner(url, plan, singles(count, tokens=1))
        start = runner._start

        def noted(*given: Any) -> None:
            in_round[rounds] = in_round.get(rounds, 0) + 1
            start(*given)

        runner._start = noted  # type: ignore[method-assign]
        ticking = asyncio.create_task(tick())
        await runner.run()
        ticking.cancel()
        await runner.client.close()
    assert sum(in_round.values()) == count
    assert max(in_round.values()) <= _BURST


class FakeProcess:
    """Keeps what it is told; says that it is ready."""

    def __init__(self) -> None:
        self.told = asyncio.StreamReader()
        self.stdin = self
        self.stdout = asyncio.StreamReader()
        self.returncode: int | None = 0
        self.drained = 0
        self.buffered = 0
        send(_Feeds(self.stdout), Ready())

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.buffered += len(data)
        self.told.feed_data(data)

    async def drain(self) -> None:
        self.drained, self.buffered = self.drained + 1, 0
        await asyncio.sleep(0)


class _Feeds:
    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def write(self, data: bytes, /) -> None:
        self._reader.feed_data(data)


async def test_each_process_is_handed_its_own_conversations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processes: list[FakeProcess] = []

    async def begin(*_: Any, **__: Any) -> FakeProcess:
        # All are started before the first is handed anything: they start up side by side.
        assert not any(one.drained for one in processes)
        processes.append(FakeProcess())
        return processes[-1]

    monkeypatch.setattr(workers.asyncio, "create_subprocess_exec", begin)
    workload = singles(7)
    job = ClientJob(endpoint=AT, plan=closed_plan(3, requests=7), conversations=tuple(workload))
    await Workers(job, 3).open()
    handed: list[Conversation] = []
    for number, process in enumerate(processes):
        started = await read_to_client(process.told)
        assert isinstance(started, Start)
        assert (started.job.worker, started.job.workers, started.job.in_all) == (number, 3, 7)
        handed += started.job.conversations
        assert process.drained == 1
    assert sorted(msgspec.json.encode(one) for one in handed) == sorted(
        msgspec.json.encode(one) for one in workload
    )


def test_a_trace_that_is_too_long_is_refused_before_all_of_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.csv"
    rows = [f"2023-11-16 18:15:{at:02}.0,100,5" for at in range(50)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    made: list[int] = []
    whole = TraceReplay._made
    monkeypatch.setattr(
        TraceReplay,
        "_made",
        lambda self, index, row: made.append(index) or whole(self, index, row),  # type: ignore[func-returns-value]
    )
    monkeypatch.setattr(prompt_options, "MAX_TRACE_CHARACTERS", 2000)
    options = PromptOptions(trace=path)
    with pytest.raises(ConfigError, match=r"2,000 characters together.*--requests \d"):
        make_requests(
            options, load_tokenization(None), "openai-chat", requests=None, warmup_requests=0
        )
    assert len(made) < 25
