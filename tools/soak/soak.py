"""The soak: rounds of load, and after each, in the quiet, what was held and what was right."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import httpx

from tools.soak import watch
from tools.soak.plan import Planned, Planner, alone
from tools.soak.server import Server, serving, write_model
from tools.soak.stream import Outcome, run

IDLE_TIMEOUT_S = 20
REQUEST_TIMEOUT_S = 120
# What Python's allocator may keep of the busiest moment; a leak of 1 KB a request is beyond it
# within ten minutes.
GROWTH_BYTES = 12 * 2**20


class Length(NamedTuple):
    """How long and how hard. check: survivors of each round that are run again alone."""

    seconds: float
    round_s: float
    streams: int
    check: int


@dataclass
class Report:
    """What one codec's soak came to; `problems` is empty when all held."""

    codec: str
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    held: list[watch.Held] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def check_flat(self) -> None:
        """Nothing is held that was not held after the first round, which warms everything up."""
        first, last = self.held[0], self.held[-1]
        for name in ("server_handles", "engine_handles", "server_threads", "tasks"):
            if getattr(last, name) > getattr(first, name):
                self.problems.append(
                    f"{name} grew from {getattr(first, name)} to {getattr(last, name)}"
                )
        for name in ("server_bytes", "engine_bytes"):
            growth = getattr(last, name) - getattr(first, name)
            if growth > GROWTH_BYTES:
                self.problems.append(f"{name} grew by {growth}, more than {GROWTH_BYTES}")
        for held in self.held:
            if held.blocks_owned or held.running or held.waiting:
                self.problems.append(f"idle, and yet held: {held}")


async def soak(
    codec: str, length: Length, seed: int, folder: Path, tell: Callable[[str], None]
) -> Report:
    """Load a server of one codec for so long; folder: for the model."""
    report = Report(codec)
    with serving(write_model(folder, codec)) as server:
        planner = Planner(seed, server.model)
        rng = random.Random(seed + 1)
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < length.seconds or len(report.held) < 2:
            left_s = length.seconds - (time.monotonic() - begun_s)
            outcomes = await _round(server, planner, length, max(1.0, min(length.round_s, left_s)))
            _count(report, outcomes)
            await _settle(server, report)
            await _compare(server, report, rng, outcomes, length.check)
            report.seconds = time.monotonic() - begun_s
            tell(
                f"{codec}: {report.seconds:.0f} s, {report.counts['requests']} requests, "
                f"{report.counts['checked']} checked, {len(report.problems)} problems"
            )
        report.check_flat()
        _check_exercised(report)
    if server.process.returncode != 0:
        report.problems.append(f"the server ended with {server.process.returncode}")
    return report


def _client(server: Server, connections: int) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=connections)
    return httpx.AsyncClient(base_url=server.url, timeout=REQUEST_TIMEOUT_S, limits=limits)


async def _round(server: Server, planner: Planner, length: Length, seconds: float) -> list[Outcome]:
    """`streams` workers, each with one request after another."""
    end_s = time.monotonic() + seconds
    outcomes: list[Outcome] = []

    async def work(client: httpx.AsyncClient) -> None:
        while time.monotonic() < end_s:
            planned = planner.draw()
            outcomes.append(await run(client, planned, planned.body))

    async with _client(server, length.streams) as client:
        await asyncio.gather(*(work(client) for _ in range(length.streams)))
    return outcomes


def _count(report: Report, outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        counts = report.counts
        counts["requests"] += 1
        counts["tokens"] += outcome.num_tokens
        counts[outcome.planned.fate] += 1
        if outcome.broken:
            report.problems.append(f"broken: {outcome.broken}: {outcome.planned.body}")
        elif outcome.given_up:
            counts["given up"] += 1
        elif outcome.status not in (200, 400) or (outcome.status == 200 and outcome.error):
            report.problems.append(f"{outcome.status} {outcome.error}: {outcome.planned.body}")
        elif outcome.status == 400:
            counts["refused"] += 1
        elif not outcome.complete:
            report.problems.append(f"incomplete: {outcome.planned.body}")
        for choice in outcome.choices.values():
            counts[f"ended {choice.finish_reason}"] += 1


async def _settle(server: Server, report: Report) -> None:
    """Wait until nothing runs, then note what is held."""
    deadline_s = time.monotonic() + IDLE_TIMEOUT_S
    async with _client(server, 1) as client:
        while True:
            metrics = await watch.metrics_of(client)
            held = watch.held(server.process.pid, metrics)
            idle = not (held.running or held.waiting or held.blocks_owned)
            if idle or time.monotonic() > deadline_s:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.3)  # connections of the round are closed by now
        report.metrics = await watch.metrics_of(client)
        report.held.append(watch.held(server.process.pid, report.metrics))


async def _compare(
    server: Server, report: Report, rng: random.Random, outcomes: list[Outcome], count: int
) -> None:
    """Run survivors again alone; what they came to has to be the same, bit for bit."""
    seen = [one for one in outcomes if one.choices or one.status == 400]
    for outcome in rng.sample(seen, min(count, len(seen))):
        report.counts["checked"] += 1
        salt = f"alone {report.counts['checked']}"
        calm = Planned(alone(outcome.planned, salt), "finish", 0, 0.0)
        async with _client(server, 1) as client:
            there = await run(client, calm, calm.body)
        if not _same(outcome, there):
            report.problems.append(
                f"differs from running alone: {outcome.planned.body}\n  beside others: "
                f"{outcome.status} {outcome.choices}\n  alone: {there.status} {there.choices}"
            )


def _same(here: Outcome, there: Outcome) -> bool:
    if here.status != there.status:
        return False
    for index, choice in here.choices.items():
        other = there.choices.get(index)
        if other is None or not choice.is_beginning_of(other):
            return False
        whole = choice.finish_reason not in (None, "timeout")
        if whole and choice != other:
            return False
    return True


def _check_exercised(report: Report) -> None:
    """A soak that met no preemption or no cache hit has shown less than it says."""
    for name in ("vllm:num_preemptions_total", "vllm:prefix_cache_hits_total"):
        if not watch.total(report.metrics, name):
            report.problems.append(f"{name} is 0: the load did not do what it is for")
