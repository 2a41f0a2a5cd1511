"""Work on large bodies: one at a time, keys in turn, and small ones beside them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar

import pytest

from headrace.http.large_bodies import LargeBodies

LEAST = 100


class Worked:
    """Work that waits for the test, and the order in which it was begun."""

    def __init__(self) -> None:
        self.bodies = LargeBodies(LEAST, "large")
        self.order: list[str] = []
        self.at_once = self.most_at_once = 0
        self.may_end = threading.Event()

    def ask(self, key: str, name: str, size: int = LEAST) -> asyncio.Future[str]:
        return asyncio.ensure_future(self.bodies.result(key, size, lambda: self._work(name)))

    def _work(self, name: str) -> str:
        self.order.append(name)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        assert self.may_end.wait(20)
        self.at_once -= 1
        return f"{name} in {threading.current_thread().name}"


@pytest.fixture
async def worked() -> AsyncIterator[Worked]:
    found = Worked()
    yield found
    found.may_end.set()
    found.bodies.close()


async def all_wait() -> None:
    """Let what was asked for get in line."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_keys_take_turns_one_body_at_a_time(worked: Worked) -> None:
    asked = [worked.ask("crowd", f"crowd {number}") for number in range(5)]
    await all_wait()
    asked += [worked.ask("other", "other 0"), worked.ask("third", "third 0")]
    asked.append(worked.ask("other", "other 1"))
    await all_wait()
    worked.may_end.set()
    await asyncio.gather(*asked)
    assert worked.order == [
        "crowd 0", "crowd 1", "other 0", "third 0", "crowd 2", "other 1", "crowd 3", "crowd 4",
    ]  # fmt: skip
    assert worked.most_at_once == 1


async def test_small_ones_wait_for_nothing(worked: Worked) -> None:
    large = worked.ask("crowd", "large")
    await all_wait()
    small = await worked.bodies.result("crowd", LEAST - 1, lambda: threading.current_thread().name)
    assert small == threading.main_thread().name
    assert not large.done()
    worked.may_end.set()
    assert "large_0" in await large


async def test_what_goes_wrong_is_raised_and_the_next_has_its_turn(worked: Worked) -> None:
    worked.may_end.set()
    wrong = asyncio.ensure_future(worked.bodies.result("a", LEAST, lambda: f"{1 // 0}"))
    right = worked.ask("a", "right")
    with pytest.raises(ZeroDivisionError):
        await wrong
    assert (await right).startswith("right")
    assert (await worked.ask("a", "again")).startswith("again")


@pytest.mark.parametrize("leaving", ["working", "waiting", "last"])
async def test_who_leaves_keeps_nobody_waiting(worked: Worked, leaving: str) -> None:
    names = ["working", "waiting", "next", "last"]
    asked = {name: worked.ask("a", name) for name in names}
    await all_wait()
    asked[leaving].cancel()
    await all_wait()
    worked.may_end.set()
    for name, work in asked.items():
        if name == leaving:
            with pytest.raises(asyncio.CancelledError):
                await work
        else:
            assert (await work).startswith(name)
    assert worked.most_at_once == 1
    assert (await worked.ask("b", "after")).startswith("after")


async def test_who_leaves_in_the_moment_of_its_turn_passes_it_on(worked: Worked) -> None:
    worked.may_end.set()
    first, second = worked.ask("a", "first"), worked.ask("a", "second")
    third = worked.ask("a", "third")
    first.add_done_callback(lambda _: second.cancel())
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await third).startswith("third")


async def test_the_work_is_done_for_the_request_that_waits(worked: Worked) -> None:
    request: ContextVar[str] = ContextVar("request")
    request.set("r1")
    assert await worked.bodies.result("a", LEAST, request.get) == "r1"
