"""A worker's link to its parent, and the counters behind it, also where the parent is stuck."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.counters import Counted, Wanted
from headrace.gateway.accounts.errors import StoresDownError
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.accounts.meter import Meter, meters_of
from headrace.gateway.accounts.stored_ids import StoredIds
from headrace.gateway.accounts.terms import Budget, Limits, Terms
from headrace.gateway.workers import messages, shared
from headrace.gateway.workers.link import Link, LinkLostError, TooLongError
from headrace.gateway.workers.linked_counters import LinkedCounters
from headrace.gateway.workers.member import Member
from headrace.gateway.workers.messages import Message
from headrace.gateway.workers.shared import Shared

TERMS = Terms(limits=(Limits(concurrency=2),), budgets=(Budget(amount=100, window="1d"),))
METERS = tuple(meters_of("key", "k", TERMS))
AT_MS = 1_790_000_000_000


class Quiet:
    """A worker's end that is asked nothing."""

    lost = False

    def on_news(self, message: Message) -> None:
        pass

    def on_question(self, message: Message) -> Message:
        return messages.Done()

    def on_lost(self) -> None:
        self.lost = True


class Stuck(Quiet):
    """A parent that reads, and answers when it is let."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.stuck = False
        self.kept: list[Callable[[], None]] = []

    def on_news(self, message: Message) -> None:
        self._do(lambda: self.member.on_news(message))

    def on_question(self, message: Message) -> Message | Awaitable[Message]:  # type: ignore[override]
        if not self.stuck:
            return self.member.on_question(message)
        told: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def answer() -> None:
            found = self.member.on_question(message)
            if isinstance(found, Awaitable):
                done = asyncio.ensure_future(found)
                done.add_done_callback(lambda done: told.set_result(done.result()))
            else:
                told.set_result(found)

        self.kept.append(answer)
        return told

    def let(self) -> None:
        """It does what came, in its order."""
        self.stuck = False
        for one in self.kept:
            one()
        self.kept.clear()

    def _do(self, work: Callable[[], None]) -> None:
        if self.stuck:
            self.kept.append(work)
        else:
            work()


class Hangs:
    """A store that never answers."""

    async def marks(self, ids: Sequence[str], *, at_ms: int) -> frozenset[str]:
        await asyncio.Event().wait()
        return frozenset()


class Pair:
    def __init__(self, counters: MemoryCounters, linked: LinkedCounters, link: Link, parent: Stuck):
        self.counters = counters
        self.linked = linked
        self.link = link
        self.parent = parent

    async def used(self) -> dict[str, tuple[int, int]]:
        """What the parent counts: used and held, by limit."""
        found = await self.counters.read(METERS, at_ms=AT_MS)
        return {one.meter.limit_name: (one.used, one.held) for one in found}

    async def take(self, id: str, amount: int, *, when_down: str = "closed") -> bool:
        """Whether there was room."""
        wanted = tuple(Wanted(one, _of(one, amount), one.amount) for one in METERS)
        short = await self.linked.reserve(
            id, wanted, at_ms=AT_MS, when_down="open" if when_down == "open" else "closed"
        )
        return not short

    async def end(self, id: str, held: int, used: int) -> bool:
        """Whether it was counted at once."""
        counted = tuple(
            Counted(one, _of(one, held), 0 if one.limit_name != "budget" else used)
            for one in METERS
        )
        ended = await self.linked.end(id, counted, reserved_ms=AT_MS, at_ms=AT_MS)
        return ended.counted


def _of(meter: Meter, amount: int) -> int:
    return amount if meter.limit_name == "budget" else 1


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """A parent with its counters, and a worker with counters linked to them."""
    counters = MemoryCounters()
    accounts = Accounts(counters, now_ns=lambda: AT_MS * 10**6, random_bytes=bytes)
    in_common = Shared(
        accounts,
        counters,
        None,
        on_alert=lambda alert: None,
        on_breaker=lambda target, state, why: None,
        on_refused=lambda told: None,
        on_taken_out=lambda told: None,
        own_pid=1,
    )
    member = Member(0, 2, in_common)
    in_common.members[0] = member
    parent = Stuck(member)
    ours, theirs = socket.socketpair()
    member.link = await Link.open(ours, parent)
    link = await Link.open(theirs, Quiet())
    try:
        yield Pair(counters, LinkedCounters(link), link, parent)
    finally:
        link.close()
        member.link.close()
        await asyncio.sleep(0)


def test_workers_count_together() -> None:
    async def check() -> None:
        async with pair() as both:
            assert await both.take("a", 60)
            assert not await both.take("b", 60)
            assert await both.end("a", 60, 30)
            assert await both.used() == {"concurrency": (0, 0), "budget": (30, 0)}
            assert await both.take("c", 70)
            assert both.linked.describe().reach == "machine"

    asyncio.run(check())


def test_what_a_worker_holds_is_given_back_when_it_dies() -> None:
    async def check() -> None:
        async with pair() as both:
            both.link.tell(messages.ReservesAs("a-"))
            assert await both.take("a-1", 60)
            assert await both.take("b-1", 10)
            both.parent.member.on_lost()
            await asyncio.sleep(0)
            assert await both.used() == {"concurrency": (0, 1), "budget": (0, 10)}

    asyncio.run(check())


def test_a_parent_that_does_not_answer_refuses_or_counts_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Link.ask, "__defaults__", (0.05,))

    async def check() -> None:
        async with pair() as both:
            assert await both.take("before", 20)
            both.parent.stuck = True
            with pytest.raises(StoresDownError, match="does not answer"):
                await both.take("refused", 10)
            assert not both.linked.describe().reachable
            # Nobody waits any more until it is back.
            with pytest.raises(StoresDownError):
                await asyncio.wait_for(both.take("refused at once", 10), 0.04)
            assert await both.take("here", 10, when_down="open")
            assert not await both.end("here", 10, 7)
            assert not await both.end("before", 20, 5)
            both.parent.let()
            await both.linked.tick(at_ms=AT_MS)
            assert both.linked.describe().reachable
            # What was asked and refused was done and undone; what was counted here counts there.
            assert await both.used() == {"concurrency": (0, 0), "budget": (12, 0)}

    asyncio.run(check())


def test_what_keys_were_told_is_not_lost_while_the_parent_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Link.ask, "__defaults__", (0.05,))

    async def check() -> None:
        async with pair() as both:
            ids = StoredIds(both.linked, lambda: AT_MS)
            await ids.tell("alice", ["resp_0"])
            both.parent.stuck = True
            for told in ("resp_1", "resp_2"):
                await ids.tell("alice", [told])
            assert await ids.told("alice", ["resp_1", "resp_2"]) == {"resp_1", "resp_2"}
            with pytest.raises(StoresDownError):
                await ids.told("alice", ["resp_0"])
            both.parent.let()
            await both.linked.tick(at_ms=AT_MS)
            at_parent = StoredIds(both.counters, lambda: AT_MS)
            every = ["resp_0", "resp_1", "resp_2"]
            for known in (ids, at_parent):
                assert await known.told("alice", [*every, "resp_3"]) == set(every)

    asyncio.run(check())


def test_a_store_that_hangs_is_not_taken_for_a_parent_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared, "_STORE_S", 0.01)

    async def check() -> None:
        async with pair() as both:
            both.parent.member._shared._accounts.stored_ids._store = Hangs()  # type: ignore[assignment]
            ids = StoredIds(both.linked, lambda: AT_MS)
            await ids.tell("alice", ["resp_1"])
            assert await ids.told("alice", ["resp_1"]) == {"resp_1"}
            with pytest.raises(StoresDownError, match="looked up"):
                await ids.told("alice", ["resp_1", "resp_2"])
            assert both.linked.describe().reachable
            assert await both.take("of another key", 10)

    asyncio.run(check())


def test_a_message_that_is_too_long_is_an_error_of_who_sent_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("headrace.gateway.workers.link.MOST_FRAME_BYTES", 5000)

    async def check() -> None:
        async with pair() as both:
            long = "a" * 5000
            with pytest.raises(TooLongError, match=r"Remembers has 5,\d+ bytes"):
                await both.linked.remembers(long, (), at_ms=AT_MS)
            with caplog.at_level(logging.ERROR):
                assert not both.link.tell(messages.Sticks("chat", long, "p/m"))
            assert "Sticks has 5," in caplog.text
            # The link goes on, and the parent is not taken for gone.
            assert both.linked.describe().reachable
            assert await both.take("of another key", 10)

    asyncio.run(check())


def test_a_parent_that_has_gone_is_told_at_once() -> None:
    async def check() -> None:
        async with pair() as both:
            assert both.parent.member.link is not None
            both.parent.member.link.close()
            with pytest.raises(LinkLostError):
                await both.link.ask(messages.Ping(), 5)
            assert not both.link.tell(messages.Ping())
            with pytest.raises(StoresDownError):
                await both.take("a", 1)

    asyncio.run(check())


def test_a_cancelled_reservation_is_undone() -> None:
    async def check() -> None:
        async with pair() as both:
            both.parent.stuck = True
            asked = asyncio.ensure_future(both.take("a", 60))
            await asyncio.sleep(0.01)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            await asyncio.sleep(0.01)
            both.parent.let()
            assert await both.used() == {"concurrency": (0, 0), "budget": (0, 0)}

    asyncio.run(check())


def test_garbage_ends_the_link_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        ours, theirs = socket.socketpair()
        quiet = Quiet()
        link = await Link.open(ours, quiet)
        theirs.sendall(b"\x03\x00\x00\x00abc")
        async with asyncio.timeout(5):
            while not quiet.lost:
                await asyncio.sleep(0.001)
        assert link.lost
        theirs.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(check())
    assert "not readable" in caplog.text


def test_messages_survive_any_cut() -> None:
    async def check() -> None:
        seen: list[Message] = []

        class Keeps(Quiet):
            def on_news(self, message: Message) -> None:
                seen.append(message)

        ours, theirs = socket.socketpair()
        sender = await Link.open(theirs, Quiet())
        sent = bytearray()

        class Into:
            def write(self, data: bytes) -> None:
                sent.extend(data)

        sender._transport, real = Into(), sender._transport  # type: ignore[assignment]
        told = [messages.Sticks("chat", "a" * size, "p/m") for size in (0, 1, 300, 70_000)]
        for one in told:
            sender._send(0, one)
        for size in (1, 2, 3, 5, 4099, len(sent)):
            seen.clear()
            receiver = Link(Keeps())
            for at in range(0, len(sent), size):
                receiver.data_received(bytes(sent[at : at + size]))
            assert seen == told
        assert real is not None
        real.close()
        ours.close()

    asyncio.run(check())
