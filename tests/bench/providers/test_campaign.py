"""Rounds by a schedule, with a clock that is turned by hand and mocks for providers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace.bench.load.tokenization import ClientTokenization, load_tokenization
from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from headrace.bench.providers.campaign import Campaign, wait_for
from headrace.bench.providers.read_store import Contents, read_store
from headrace.bench.providers.settings import ProvidersFile
from headrace.bench.providers.start import make_plan
from headrace.bench.providers.store import Store
from headrace.errors import ConfigError
from tests.bench.client.wire import scripted
from tests.bench.providers.made import START, Clock, file, provider

SMALL: dict[str, Any] = {
    "input_tokens": "8",
    "output_tokens": 3,
    "single_requests": 1,
    "batch_size": 2,
    "interval": "10m",
}
NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def tokenization() -> ClientTokenization:
    return load_tokenization(None)


Begin = Callable[..., Campaign]


class Bench:
    """Begins sessions on one database, one after the other."""

    def __init__(self, path: Path, tokenization: ClientTokenization) -> None:
        self.path = path
        self.clock = Clock()
        self.told: list[str] = []
        self._tokenization = tokenization
        self._salts = itertools.count()

    async def run(self, of: ProvidersFile, *, once: bool = False, **more: Any) -> Campaign:
        environ = more.pop("environ", {"KEY": "right"})
        append = more.pop("append", False)
        store = Store(self.path)
        try:
            plan = make_plan(
                of,
                store,
                folder=self.path.parent,
                tokenization=self._tokenization,
                environ=environ,
                entropy=lambda: next(self._salts),
                append=append,
            )
            told = {"now": self.clock.now, "wait": self.clock.wait, "tell": self.told.append}
            campaign = Campaign(plan, store, **{**told, **more})
            await campaign.run(once=once)
        finally:
            store.close()
        return campaign

    @property
    def contents(self) -> Contents:
        return read_store(self.path)


@pytest.fixture
def bench(tmp_path: Path, tokenization: ClientTokenization) -> Bench:
    return Bench(tmp_path / "p.db", tokenization)


async def entered(stack: AsyncExitStack, **settings: Any) -> MockEndpoint:
    told = {"ttft_ms": 1, "tpot_ms": 1, **settings}
    endpoint = MockEndpoint(MockSettings(**told), keep_requests=1000)
    await stack.enter_async_context(endpoint)
    return endpoint


@pytest.mark.load
async def test_rounds_come_at_their_times_and_one_failing_stops_nobody(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        one = await entered(stack)
        two = await entered(stack, errors=(("500", 1.0),))
        of = file(
            provider("one", one.url),
            provider("two", two.url),
            provider("three", NOBODY),
            duration="30m",
            **SMALL,
        )
        campaign = await bench.run(of)
    found = bench.contents
    assert (found.rounds, found.missed) == (3, 0)
    assert sorted({visit.began_at - START for visit in found.visits}) == [0, 600, 1200]
    outcomes = {
        series.name: [one.outcome for one in found.visits if one.series == series.id]
        for series in found.series
    }
    assert outcomes == {
        "one": ["complete"] * 3,
        "two": ["failing"] * 3,
        "three": ["unreachable"] * 3,
    }
    # Each was first in one of the three rounds.
    assert {one.series for one in found.visits if one.place == 0} == {0, 1, 2}
    assert len(one.received) == 9
    assert campaign.tallies["one"].succeeded == 9
    assert (campaign.tallies["two"].requests, campaign.tallies["two"].succeeded) == (3, 0)
    assert not campaign.interrupted
    assert bench.told[-1].startswith("the schedule has ended")
    bodies = {request.body for request in one.received}
    assert len(bodies) == 9, "a salt was sent twice"


@pytest.mark.load
async def test_a_refused_key_is_told_once_and_pauses_one(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        one = await entered(stack)
        two = await entered(stack, api_key="other")
        of = file(
            provider("one", one.url),
            provider("two", two.url, api_key_env="KEY"),
            duration="30m",
            **SMALL,
        )
        campaign = await bench.run(of)
        assert two.outcomes == {"unauthorized": 1}
        told = [line for line in bench.told if "paused" in line]
        assert told == ["two is paused: check the key in KEY, and start the command again"]
        assert campaign.tallies["two"].paused.startswith("HTTP 401")
        paused = [one.outcome for one in bench.contents.visits if one.outcome != "complete"]
        assert paused == ["refused", "paused", "paused"]
        # With the right key it is measured again, without an --append.
        await bench.run(of, once=True, environ={"KEY": "other"})
        assert two.outcomes["completed"] == 3
    assert b"right" not in bench.path.read_bytes()


async def test_a_field_that_is_refused_is_told_with_the_key_that_helps(bench: Bench) -> None:
    body = b'{"error": {"message": "unknown field stream_options"}}'
    head = b"HTTP/1.1 400 Bad\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
    async with scripted(head + body) as url:
        await bench.run(file(provider("one", url), **SMALL), once=True)
    assert "one: write include_usage: false for it in the file" in bench.told


async def test_it_ends_when_everybody_is_paused(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        one = await entered(stack, api_key="other")
        await bench.run(file(provider("one", one.url, api_key_env="KEY"), **SMALL))
    assert bench.told[-1] == "every provider is paused, so there is nothing left to measure"
    assert len(bench.contents.visits) == 1


@pytest.mark.load
async def test_a_second_run_goes_on_by_the_schedule_without_a_burst(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        one = await entered(stack)
        of = file(provider("one", one.url), duration="100m", **SMALL)
        bench.clock.stop_at = START + 1300
        first = await bench.run(of)
        assert first.interrupted
        assert bench.contents.rounds == 3
        # Half an hour later, in the middle of a slot.
        bench.clock.at, bench.clock.stop_at = START + 3300, START + 3700
        bench.told.clear()
        await bench.run(of)
    found = bench.contents
    assert [visit.began_at - START for visit in found.visits] == [0, 600, 1200, 3600]
    assert found.missed == 3
    assert "3 rounds were missed; missed rounds are not made up for" in bench.told
    assert max(bench.clock.waits) <= 30


async def test_a_round_that_was_cut_off_is_finished_while_it_is_its_time(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        one, two = await entered(stack), await entered(stack)
        of = file(provider("one", one.url), provider("two", two.url), duration="10m", **SMALL)
        await bench.run(of)
        # As a kill between the two would have left it.
        store = Store(bench.path)
        with store._transaction() as on:
            last = on.execute("SELECT max(id) FROM visits").fetchone()[0]
            on.execute("DELETE FROM requests WHERE visit = ?", (last,))
            on.execute("DELETE FROM visits WHERE id = ?", (last,))
            on.execute("UPDATE rounds SET ended_at = NULL")
        store.close()
        left = bench.contents.visits[0]
        bench.clock.at = START + 60
        await bench.run(of)
        found = bench.contents
        assert found.rounds == 1
        assert [visit.place for visit in found.visits] == [0, 1]
        assert found.visits[0] == left
        assert found.visits[1].began_at == START + 60
        # Not once it is past.
        store = Store(bench.path)
        with store._transaction() as on:
            on.execute("UPDATE rounds SET ended_at = NULL")
        store.close()
        bench.clock.at = START + 700
        await bench.run(of)
    assert bench.contents.visits == found.visits


async def test_once_is_one_round_and_begins_no_schedule(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        one = await entered(stack)
        of = file(provider("one", one.url), duration="15m", **SMALL)
        await bench.run(of, once=True)
        assert bench.clock.waits == []
        bench.clock.at += 86_400
        await bench.run(of)
    begins = [visit.began_at - START for visit in bench.contents.visits]
    assert begins == [0, 86_400, 87_000]
    assert bench.contents.missed == 0


async def test_a_machine_that_slept_runs_no_round_that_is_past(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        one = await entered(stack)
        of = file(provider("one", one.url), duration="10h", **SMALL)

        async def sleep_long(stopped: asyncio.Event, wait_s: float) -> None:
            await bench.clock.wait(stopped, wait_s)
            if START + 30 < bench.clock.at < START + 7200:
                bench.clock.at = START + 7290  # asleep through twelve slots
            bench.clock.stop_at = START + 7850

        await bench.run(of, wait=sleep_long)
    assert [visit.began_at - START for visit in bench.contents.visits] == [0, 7800]


async def test_other_settings_are_refused_unless_appended(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        one = await entered(stack)
        of = file(provider("one", one.url), **SMALL)
        await bench.run(of, once=True)
        other = file(provider("one", one.url, model="n"), **{**SMALL, "batch_size": 1})
        with pytest.raises(ConfigError) as refused:
            await bench.run(other, once=True)
        assert "batch_size was 2 and is 1; one: model was 'm' and is 'n'" in str(refused.value)
        assert "--append" in str(refused.value)
        await bench.run(other, once=True, append=True)
        # Prices, notes and the schedule are nothing that was measured.
        said = file(
            provider("one", one.url, model="n", notes="x", usd_per_hour=1.0),
            **{**SMALL, "batch_size": 1, "interval": "1m", "duration": "2m"},
        )
        await bench.run(said, once=True)
    assert [one.name for one in bench.contents.series] == ["one", "one"]
    assert [visit.series for visit in bench.contents.visits] == [0, 1, 1]


async def test_what_cannot_be_sent_is_found_before_anything_is(bench: Bench) -> None:
    unset = file(provider("one", NOBODY, api_key_env="UNSET_KEY"), **SMALL)
    with pytest.raises(ConfigError, match=r"provider one: api_key_env: .*UNSET_KEY"):
        await bench.run(unset)
    (bench.path.parent / "ids.jsonl").write_text('{"prompt": [1, 2, 3]}\n', encoding="utf-8")
    ids = file(provider("one", NOBODY), **{**SMALL, "dataset": "ids.jsonl", "cached": True})
    with pytest.raises(ConfigError, match="provider one: prompt: a chat endpoint takes text"):
        await bench.run(ids)
    assert not bench.told


async def test_a_key_in_place_of_a_name_is_not_repeated(bench: Bench) -> None:
    of = file(provider("one", NOBODY, api_key_env="sk-not-a-name-123"), **SMALL)
    with pytest.raises(ConfigError) as refused:
        await bench.run(of)
    assert "sk-not" not in str(refused.value)


async def test_stopping_in_a_visit_keeps_the_others(bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        slow = await entered(stack, tpot_ms=3_600_000)
        of = file(provider("slow", slow.url), provider("other", NOBODY), **SMALL)
        task = asyncio.create_task(bench.run(of))
        while not slow.received:
            await asyncio.sleep(0.005)
        # What a signal does: the loop's handler is that of `stops_at_signal`.
        import os
        import signal

        os.kill(os.getpid(), signal.SIGINT)
        campaign = await asyncio.wait_for(task, 60)
    assert campaign.interrupted
    last = bench.contents.visits[-1]
    assert last.outcome == "interrupted"
    assert bench.told[-1].endswith("slow: interrupted")


async def test_waiting_ends_at_once_when_stopped() -> None:
    stopped = asyncio.Event()
    await wait_for(stopped, 0.001)
    stopped.set()
    await asyncio.wait_for(wait_for(stopped, 3600), 10)
