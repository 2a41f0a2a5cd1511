"""Providers databases with figures that are known, and clocks that tests turn by hand."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec

from headrace.bench.providers.identity import provider_facts, said_facts, workload_facts
from headrace.bench.providers.rows import RequestRow
from headrace.bench.providers.schedule import Schedule, order
from headrace.bench.providers.settings import Price, Provider, ProvidersFile
from headrace.bench.providers.store import Store

MS = 1e6
START = 1_790_000_000.0
"""A Monday in 2026, 14:13:20 UTC."""


class Clock:
    """Seconds since the epoch; waiting turns it on at once. stop_at: when Ctrl-C comes."""

    def __init__(self, at: float = START) -> None:
        self.at = at
        self.waits: list[float] = []
        self.stop_at: float | None = None

    def now(self) -> float:
        return self.at

    async def wait(self, stopped: asyncio.Event, wait_s: float) -> None:
        self.waits.append(wait_s)
        self.at += wait_s
        if self.stop_at is not None and self.at >= self.stop_at:
            stopped.set()
        await asyncio.sleep(0)


class Fares(msgspec.Struct, frozen=True):
    """How a made provider fares: TTFT, TPOT, and how much slower each of a batch is."""

    ttft_ms: float
    tpot_ms: float
    batch_slower: float = 1.2
    failing: frozenset[int] = frozenset()  # rounds in which nothing is answered


def file(*providers: Provider, **fields: Any) -> ProvidersFile:
    return ProvidersFile(providers=providers, **fields)


def provider(name: str, url: str = "http://127.0.0.1:9/v1", **fields: Any) -> Provider:
    return Provider(**{"name": name, "base_url": url, "model": "m", **fields})


def row(
    phase: Any, position: int, began_ms: float, fares: Fares, scale: float, **fields: Any
) -> RequestRow:
    """An answered request of 50 prompt and 21 output tokens."""
    slower = fares.batch_slower if phase == "batch" else 1.0
    ttft, tpot = fares.ttft_ms * slower * scale, fares.tpot_ms * slower * scale
    e2e = ttft + 20 * tpot
    began = round(began_ms * MS)
    values: dict[str, Any] = {
        **dict.fromkeys(name for name in RequestRow.__struct_fields__),
        "phase": phase,
        "position": position,
        "intended_ns": began,
        "begun_ns": began,
        "sent_ns": began,
        "headers_ns": began,
        "end_ns": began + round(e2e * MS),
        "ttft_ns": ttft * MS,
        "ttfot_ns": ttft * MS,
        "tpot_ns": tpot * MS,
        "e2e_ns": e2e * MS,
        "stall_ns": tpot * MS,
        "chunks": 21,
        "characters": 84,
        "first_characters": 4,
        "prompt_tokens": 50,
        "output_tokens": 21,
        "told_tokens": 21,
        "output_tokens_asked": 21,
        "status": 200,
        "finish_reason": "length",
        "new_connection": False,
    }
    return RequestRow(**{**values, **fields})


def failed_row(phase: Any, position: int, **fields: Any) -> RequestRow:
    nothing = dict.fromkeys(
        ("ttft_ns", "ttfot_ns", "tpot_ns", "e2e_ns", "output_tokens", "told_tokens"), None
    )
    told = {"error": "http", "status": 503, "message": "HTTP 503", **nothing, **fields}
    return row(phase, position, 0, Fares(1, 1), 1, **told)


def fill(
    path: Path,
    of: ProvidersFile,
    fares: dict[str, Fares],
    rounds: int,
    *,
    start: float = START,
    jitter: float = 0.0,
    skip: frozenset[int] = frozenset(),
) -> None:
    """As many rounds of the schedule, but for the skipped slots, written to `path`."""
    source = random.Random(1)
    facts = {one.name: (provider_facts(one), said_facts(one)) for one in of.providers}
    store = Store(path)
    workload = workload_facts(of, "synthetic", "f")
    schedule = Schedule(start, of.interval_s, of.duration_s)
    about = {"version": "0", "client_cpu": "made"}
    session, workload_id, ids = store.begin_session(workload, facts, schedule, about, start)
    for slot in range(rounds):
        if slot in skip:
            continue
        at = schedule.due_at(slot)
        round_id, number = store.begin_round(session, workload_id, slot, at, at)
        for place, name in enumerate(order(list(ids), number, of.seed)):
            of_one = fares[name]
            scale = 1 + jitter * source.random()
            if slot in of_one.failing:
                requests = [failed_row("single", 0)]
                outcome, message = "failing", "HTTP 503"
            else:
                requests, began_ms = [], 0.0
                for position in range(of.single_requests):
                    scaled = scale * (1 + jitter * source.random())
                    requests.append(row("single", position, began_ms, of_one, scaled))
                    began_ms += (of_one.ttft_ms + 20 * of_one.tpot_ms) * scaled
                requests += [
                    row("batch", position, began_ms, of_one, scale)
                    for position in range(of.batch_size)
                ]
                outcome, message = "complete", ""
            store.add_visit(
                round_id,
                ids[name],
                place=place,
                began_at=at + place,
                ended_at=at + place + 1,
                outcome=outcome,
                message=message,
                client_bound=False,
                requests=requests,
            )
        store.end_round(round_id, at + len(ids))
    store.end_session(session, start + rounds * of.interval_s)
    store.close()


def priced(name: str, output: float, **fields: Any) -> Provider:
    return provider(name, price=Price(input=output / 4, output=output), **fields)
