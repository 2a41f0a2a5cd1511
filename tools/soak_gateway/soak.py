"""The soak: hour after hour of traffic, and after each, in the quiet, what is held."""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import httpx

from tools.soak_gateway import bills, watch
from tools.soak_gateway.client import Seen, ask, plan
from tools.soak_gateway.gateway import KEYS, MASTER, Gateway, serving
from tools.soak_gateway.provider import Provider
from tools.soak_gateway.provider import serving as providing

IDLE_TIMEOUT_S = 40
# What Python's allocator may keep of the busiest moment. A leak of 200 bytes a request is beyond it
# after 60,000.
GROWTH_BYTES = 12 * 2**20
# How long what was counted may take to be what it was: a check of health takes 5 s at most.
FLAT_TIMEOUT_S = 15.0
_SECRETS = (*KEYS, MASTER, "sk-soak-provider", "Tell me of mills")
_MOST_PROBLEMS = 200


class Length(NamedTuple):
    """seconds: of real time for so many hours. per_hour: requests, on average."""

    hours: int
    seconds: float
    per_hour: int
    workers: int


@dataclass
class Report:
    """`problems` is empty when all held."""

    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    held: list[watch.Held] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def check_flat(self) -> None:
        """The last third beside the third before it: the first warms everything up."""
        third = max(1, len(self.held) // 3)
        before, after = self.held[-2 * third : -third], self.held[-third:]
        for name in ("handles", "threads", "tasks"):
            was = max(getattr(one, name) for one in before)
            now = statistics.median(getattr(one, name) for one in after)
            if now > was:
                self.problems.append(f"{name} grew from {was} to {now}")
        was = statistics.median(one.memory_bytes for one in before)
        now = statistics.median(one.memory_bytes for one in after)
        if now - was > GROWTH_BYTES:
            self.problems.append(f"memory grew by {now - was:,.0f}, more than {GROWTH_BYTES:,}")
        self.problems += [f"idle, and yet held: {one}" for one in self.held if one.in_flight]


async def soak(length: Length, seed: int, folder: Path, tell: Callable[[str], None]) -> Report:
    """Both providers and the gateway are started and ended here; folder: for its files."""
    report = Report()
    source = random.Random(seed)
    left, right = Provider(seed + 1, gap_s=0.004), Provider(seed + 2, gap_s=0.008)
    async with providing(left) as one, providing(right) as other:
        with serving(folder, {"left": one, "right": other}, length.workers) as gateway:
            begun_s = time.monotonic()
            for hour in range(length.hours):
                await _hour(gateway, hour, length, source, report)
                await _settle(gateway, report, begun_s)
                report.seconds = time.monotonic() - begun_s
                held = report.held[-1]
                tell(
                    f"hour {hour + 1} of {length.hours}: {len(report.seen):,} requests, "
                    f"{held.memory_bytes / 1e6:.1f} MB, {held.handles} handles, {held.tasks} tasks,"
                    f" {len(report.problems)} problems"
                )
        if gateway.process.returncode != 0:
            report.problems.append(f"the gateway ended with {gateway.process.returncode}")
        for provider in (left, right):
            report.counts.update({f"provider: {name}": n for name, n in provider.did.items()})
        told = {
            number: [*left.told.get(number, ()), *right.told.get(number, ())]
            for number in {*left.told, *right.told}
        }
        report.problems += bills.problems(gateway.ledger, report.seen, told, report.counts)
        log = gateway.log.read_text(errors="replace")
        report.problems += [f"the log has {one!r}" for one in _SECRETS if one in log]
    report.check_flat()
    del report.problems[_MOST_PROBLEMS:]
    return report


async def _hour(
    gateway: Gateway, hour: int, length: Length, source: random.Random, report: Report
) -> None:
    """Requests come when they come, whether or not earlier ones are answered."""
    lasts_s = length.seconds / length.hours
    # From night to noon to night.
    share = 1 + 0.8 * math.sin(2 * math.pi * (hour / max(1, length.hours) - 0.25))
    rate = max(1.0, length.per_hour * share / lasts_s)
    end_s = time.monotonic() + lasts_s
    limits = httpx.Limits(max_connections=400, max_keepalive_connections=40)
    running: set[asyncio.Task[None]] = set()

    async def one(number: int) -> None:
        seen = await ask(client, plan(number, source, KEYS))
        report.seen.append(seen)
        report.counts[seen.planned.fate] += 1
        if seen.status:
            report.counts[f"status {seen.status}"] += 1
        if problem := bills.misunderstood(seen):
            report.problems.append(problem)

    async with httpx.AsyncClient(base_url=gateway.url, timeout=60, limits=limits) as client:
        reload_s = end_s - lasts_s / 2
        while (now_s := time.monotonic()) < end_s:
            if now_s >= reload_s:
                gateway.reload()
                reload_s = math.inf
            report.counts["requests"] += 1
            task = asyncio.create_task(one(report.counts["requests"]))
            running.add(task)
            task.add_done_callback(running.discard)
            await asyncio.sleep(source.expovariate(rate))
        while running:
            await asyncio.wait(running)


async def _settle(gateway: Gateway, report: Report, begun_s: float) -> None:
    """Wait until nothing is under way, then note what is held."""
    deadline_s = time.monotonic() + IDLE_TIMEOUT_S
    async with watch.watcher(gateway.url) as client:
        while True:
            now_s = time.monotonic()
            held = await watch.held(client, gateway.process.pid, now_s - begun_s)
            if not held.in_flight or now_s > deadline_s:
                break
            await asyncio.sleep(0.1)
        # Connections of the hour are closed by then, and a task that is there for a moment is not
        # taken for one that stays: what is counted is waited for until it holds.
        flat_s = time.monotonic() + FLAT_TIMEOUT_S
        await asyncio.sleep(1.0)
        while True:
            now_s = time.monotonic()
            held = await watch.held(client, gateway.process.pid, now_s - begun_s)
            if now_s > flat_s or not report.held or held.is_at_most(report.held[-1]):
                break
            await asyncio.sleep(0.2)
        report.held.append(held)
