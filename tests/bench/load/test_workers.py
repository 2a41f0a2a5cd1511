"""Several client processes: one that dies costs its own records and no others."""

from __future__ import annotations

import asyncio
import math
import os
import random
import signal

import msgspec
import pytest

from headrace.bench.load.client_run import ClientJob
from headrace.bench.load.live import Quiet
from headrace.bench.load.measure import measure
from headrace.bench.load.plan import closed_plan, open_plan
from headrace.bench.load.workers import Workers
from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from headrace.bench.workload import WorkItem
from headrace.errors import ConfigError
from tests.bench.load.helpers import QUICK, endpoint, singles, talk


def job(url: str, users: int, requests: int, **plan: float) -> ClientJob:
    return ClientJob(
        endpoint=endpoint(url),
        plan=closed_plan(users, requests=requests, **plan),  # type: ignore[arg-type]
        conversations=tuple(singles(min(requests, 20))),
    )


@pytest.mark.process
async def test_a_process_that_dies_is_told_of_and_the_others_records_are_kept() -> None:
    async with MockEndpoint(MockSettings(ttft_ms=20, tpot_ms=1)) as url:
        workers = Workers(job(url, 2, 100_000, grace_s=5.0), 2)
        await workers.open()
        run = asyncio.create_task(workers.run())
        while not (await workers.progress()).counts.ended:
            await asyncio.sleep(0.05)
        victim = workers.pids[0]
        os.kill(victim, signal.SIGKILL)
        outcome = await run
    assert workers.lost == 1
    assert outcome.records
    assert outcome.ending == "max_errors"
    assert len(outcome.health.cpu_share) == 1


@pytest.mark.process
async def test_stopping_reaches_every_process() -> None:
    async with MockEndpoint(MockSettings(**QUICK)) as url:
        workers = Workers(job(url, 2, 100_000), 2)
        await workers.open()
        run = asyncio.create_task(workers.run())
        while (await workers.progress()).counts.ended < 10:
            await asyncio.sleep(0.05)
        workers.stop()
        outcome = await run
    assert outcome.ending == "interrupted"
    assert [one.index for one in outcome.records] == list(range(len(outcome.records)))
    wanted = [one.intended_ns for one in outcome.records]
    assert wanted == sorted(wanted)


@pytest.mark.process
async def test_one_that_finds_the_server_saturated_ends_the_run_of_all() -> None:
    plan = open_plan(80, random.Random(1), burstiness=math.inf, duration_s=40.0, grace_s=0.0)
    async with MockEndpoint(MockSettings(ttft_ms=100, tpot_ms=1, capacity=1)) as url:
        whole = ClientJob(
            endpoint=endpoint(url),
            plan=msgspec.structs.replace(plan, stop_when_saturated=True),
            conversations=tuple(singles(20)),
        )
        workers = Workers(whole, 2)
        await workers.open()
        outcome = await workers.run()
    assert outcome.ending == "saturated"
    assert len(outcome.records) < 3200
    assert outcome.health.collections is not None


@pytest.mark.process
async def test_an_error_of_a_process_is_the_runs() -> None:
    turns = talk(1, 1)
    bad = WorkItem(prompt=turns[0].prompt.__class__(token_ids=(1, 2)))
    async with MockEndpoint(MockSettings(**QUICK)) as url:
        good = job(url, 2, 2)
        workers = Workers(
            ClientJob(
                endpoint=good.endpoint,
                plan=good.plan,
                conversations=(tuple(turns), (bad,)),
            ),
            2,
        )
        await workers.open()
        with pytest.raises(ConfigError, match="text or messages"):
            await workers.run()


async def test_sigint_ends_a_run_and_keeps_it() -> None:
    async with (mock := MockEndpoint(MockSettings(**QUICK))) as url:

        async def press() -> None:
            while not mock.outcomes["completed"]:
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        pressing = asyncio.create_task(press())
        done = await measure(
            job(url, 2, 1_000_000), about={"seed": 1}, view=Quiet(), metrics_path="/metrics"
        )
        await pressing
    assert done.ending == "interrupted"
    assert done.run.about["ending"] == "interrupted"
    assert done.run.about["seed"] == 1
    assert done.repeats == (len(done.run.requests) > 20)
    assert any(one.failure is None for one in done.run.requests)
    assert len(done.run.server_metrics) >= 2
