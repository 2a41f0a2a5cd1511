"""Tokens that are renewed: once at a time, early, and without losing what is still good."""

from __future__ import annotations

import asyncio

import pytest

from headrace.gateway.credentials.renewed import Fresh, Renewed
from headrace.gateway.upstream.errors import UpstreamError
from tests.gateway.credentials.clock import Clock


class Source:
    """Hands out t1, t2, ...; waits while `gate` is shut; fails while `fails` says so."""

    def __init__(self, lasts_s: float = 3600.0) -> None:
        self.lasts_s = lasts_s
        self.asked = 0
        self.fails = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self) -> Fresh[str]:
        self.asked += 1
        number = self.asked
        await self.gate.wait()
        if self.fails:
            raise UpstreamError("connect", "nobody there")
        return Fresh(f"t{number}", self.lasts_s)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_asks_for_all() -> None:
    source, clock = Source(), Clock()
    token = Renewed(source.ask, "token", clock)
    source.gate.clear()
    waiting = [asyncio.ensure_future(token.current()) for _ in range(50)]
    await settle()
    source.gate.set()
    assert set(await asyncio.gather(*waiting)) == {"t1"}
    assert source.asked == 1
    clock.now_s += 3200
    assert await token.current() == "t1" and source.asked == 1


async def test_it_is_renewed_before_it_ends_and_nobody_waits() -> None:
    source, clock = Source(), Clock()
    token = Renewed(source.ask, "token", clock)
    assert await token.current() == "t1"
    clock.now_s += 3301  # less than five minutes are left
    source.gate.clear()
    assert [await token.current() for _ in range(3)] == ["t1"] * 3
    await settle()
    assert source.asked == 2
    source.gate.set()
    await settle()
    assert await token.current() == "t2" and source.asked == 2


async def test_a_failed_renewal_keeps_what_is_good() -> None:
    source, clock = Source(), Clock()
    token = Renewed(source.ask, "token", clock)
    await token.current()
    source.fails = True
    clock.now_s += 3400
    assert await token.current() == "t1"
    await settle()
    assert await token.current() == "t1" and source.asked == 2  # not again at once
    clock.now_s += 6
    assert await token.current() == "t1"
    await settle()
    assert source.asked == 3
    clock.now_s += 300  # it has ended now
    with pytest.raises(UpstreamError, match="token: nobody there"):
        await token.current()
    source.fails = False
    clock.now_s += 6
    assert await token.current() == "t5"


async def test_without_any_a_failure_is_told_and_not_repeated_by_each_request() -> None:
    source, clock = Source(), Clock()
    token = Renewed(source.ask, "token", clock)
    source.fails = True
    for _ in range(10):
        with pytest.raises(UpstreamError):
            await token.current()
    assert source.asked == 1
    source.fails = False
    clock.now_s += 5
    assert await token.current() == "t2"


async def test_a_client_that_goes_does_not_end_it_for_the_others() -> None:
    source, clock = Source(), Clock()
    token = Renewed(source.ask, "token", clock)
    source.gate.clear()
    first = asyncio.ensure_future(token.current())
    second = asyncio.ensure_future(token.current())
    await settle()
    first.cancel()
    await settle()
    source.gate.set()
    assert await second == "t1" and source.asked == 1
    assert first.cancelled()


async def test_short_ones_are_renewed_after_three_quarters() -> None:
    source, clock = Source(lasts_s=60), Clock()
    token = Renewed(source.ask, "token", clock)
    await token.current()
    clock.now_s += 44
    await token.current()
    await settle()
    assert source.asked == 1
    clock.now_s += 2
    await token.current()
    await settle()
    assert source.asked == 2


async def test_a_fault_of_ours_is_a_failure_like_others(caplog: pytest.LogCaptureFixture) -> None:
    clock, faults = Clock(), [ValueError("a fault")]

    async def ask() -> Fresh[str]:
        if faults:
            raise faults.pop()
        return Fresh("t1", 60.0)

    token = Renewed(ask, "token", clock)
    with pytest.raises(UpstreamError, match="a fault of the gateway"):
        await token.current()
    assert "ValueError: a fault" in caplog.text
    clock.now_s += 5
    assert await token.current() == "t1"
