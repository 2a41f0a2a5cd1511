"""Answers in a real Redis: kept, bounded, expired, and a miss whenever it does not answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.gateway.cache.breaker import Breaker
from headrace.gateway.cache.redis_store import RedisStore, client_of
from headrace.gateway.serving.entry import Entry
from tests.gateway.accounts.redis_server import RedisServer, redis_program
from tests.gateway.cache.test_hits import CHAT, STATE, settings
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers
from tests.gateway.upstream.scripted import served

KEY = bytes(range(32))
OTHER = bytes(32)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    found = RedisServer(redis_program(), tmp_path / "redis")
    found.start()
    yield found
    found.kill()


class Clock:
    """Seconds, as they are set."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def store_at(server: RedisServer, clock: Clock | None = None, **more: float) -> RedisStore:
    return RedisStore(
        client_of(server.url),
        "hr:",
        most_value_bytes=1000,
        clock_s=clock or Clock(),
        **{"most_wait_s": 2.0, **more},
    )


async def test_what_is_put_is_found_by_another_until_it_expires(server: RedisServer) -> None:
    one, two = store_at(server), store_at(server)
    one.put(KEY, b"an answer", now_s=100.0, expires_s=100.3)
    one.put(OTHER, b"x" * 1001, now_s=100.0, expires_s=200.0)
    await one.written()
    assert await two.get(KEY, 100.0) == b"an answer"
    assert await two.get(OTHER, 100.0) is None, "larger than is kept"
    names = await client_of(server.url).keys("*")
    assert names == [b"hr:" + KEY.hex().encode()]
    lifetime_ms = await client_of(server.url).pttl(names[0])
    assert 0 < lifetime_ms <= 300, "Redis itself ends it"
    client = client_of(server.url)
    await client.set(b"hr:" + OTHER.hex().encode(), b"y" * 1001)
    assert await two.get(OTHER, 0.0) is None, "what somebody else put there is not read whole"
    await client.pexpire(names[0], 1)
    while await client.exists(names[0]):
        pass
    assert await two.get(KEY, 100.0) is None
    for each in (one, two):
        each.close()


async def test_a_dead_redis_is_a_miss_at_once_and_comes_back(server: RedisServer) -> None:
    clock = Clock()
    store = store_at(server, clock)
    store.put(KEY, b"an answer", now_s=0.0, expires_s=60.0)
    await store.written()
    server.kill()
    for _ in range(3):
        assert await store.get(KEY, 0.0) is None
    began = time.perf_counter()
    for _ in range(1000):
        assert await store.get(KEY, 0.0) is None
    assert time.perf_counter() - began < 0.5, "nobody tries to connect"
    store.put(KEY, b"lost", now_s=0.0, expires_s=60.0)
    await store.written()
    server.start()
    assert await store.get(KEY, 0.0) is None, "it rests"
    clock.s += 1.1
    assert await store.get(KEY, 0.0) is None, "asked, and empty after the kill"
    store.put(KEY, b"again", now_s=0.0, expires_s=60.0)
    await store.written()
    assert await store.get(KEY, 0.0) == b"again"
    store.close()


async def test_a_redis_that_hangs_costs_a_few_bounded_waits(server: RedisServer) -> None:
    clock = Clock()
    store = store_at(server, clock, most_wait_s=0.05)
    store.put(KEY, b"an answer", now_s=0.0, expires_s=600.0)
    await store.written()
    with server.paused():
        began = time.perf_counter()
        for _ in range(50):
            assert await store.get(KEY, 0.0) is None
        # Three waits of 50 ms; fifty would be 2.5 s.
        assert time.perf_counter() - began < 1.5
    clock.s += 1.1
    store._most_wait_s = 5.0
    assert await store.get(KEY, 0.0) == b"an answer"
    store.close()


async def test_a_late_reply_is_never_taken_for_the_answer_to_the_next(
    server: RedisServer,
) -> None:
    """Who is told another's answer is told another tenant's, perhaps."""
    clock = Clock()
    store = store_at(server, clock, most_wait_s=0.05)
    keys = [bytes([at]) * 32 for at in range(40)]
    for key in keys:
        store.put(key, key.hex().encode(), now_s=0.0, expires_s=600.0)
    await store.written()
    for _ in range(3):
        with server.paused():
            found = await asyncio.gather(*(store.get(key, 0.0) for key in keys))
            assert found == [None] * 40
        clock.s += 31.0
        assert await store.get(keys[7], 0.0) in (None, keys[7].hex().encode())
        clock.s += 31.0
        store._most_wait_s = 5.0
        assert await store.get(keys[7], 0.0) == keys[7].hex().encode()
        found = await asyncio.gather(*(store.get(key, 0.0) for key in reversed(keys)))
        assert found == [key.hex().encode() for key in reversed(keys)]
        tasks = [asyncio.ensure_future(store.get(key, 0.0)) for key in keys]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()  # as clients go
        await asyncio.wait(tasks)
        found = await asyncio.gather(*(store.get(key, 0.0) for key in keys))
        assert found == [key.hex().encode() for key in keys]
        store._most_wait_s = 0.05
    store.close()


def test_a_store_that_nobody_used_is_closed_without_a_loop() -> None:
    store = store_at(RedisServer("", Path()))
    store.close()
    store.close()


async def test_requests_are_answered_while_it_is_killed_and_started(
    server: RedisServer, tmp_path: Path
) -> None:
    entries: list[Entry] = []
    cache = {"store": "redis", "redis": "env:CACHE_REDIS", "redis_timeout_s": 2.0}
    async with served(answers()) as provider:

        def made(environ: dict[str, str]) -> object:
            return gateway(settings(provider.origin, cache=cache), entries, environ=environ)

        environ = {"CACHE_REDIS": server.url}
        one, two = made(environ), made(environ)
        told = await ask(one.app, CHAT)  # type: ignore[attr-defined]
        assert told.headers[STATE] == "miss"
        await one.serving.cache._store.written()  # type: ignore[attr-defined]
        told = await ask(two.app, CHAT)  # type: ignore[attr-defined]
        assert told.headers[STATE] == "hit", "another gateway's answer"
        server.kill()
        for _ in range(5):
            told = await ask(two.app, CHAT)  # type: ignore[attr-defined]
            assert (told.status, told.headers[STATE]) == (200, "miss")
        assert [one.outcome for one in entries] == ["answered"] * 7
        for each in (one, two):
            each.close()  # type: ignore[attr-defined]


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="needs a server"):
        gateway(settings("http://127.0.0.1:9", cache={"store": "redis"}), [])
    with pytest.raises(ConfigError, match=r"cache: redis: only `store: redis`"):
        gateway(settings("http://127.0.0.1:9", cache={"redis": "redis://x"}), [])
    with pytest.raises(ConfigError, match="should look like") as told:
        client_of("http://user:hunter2@host")
    assert "hunter2" not in str(told.value)
    server = RedisServer("", Path())
    assert "127.0.0.1" not in repr(store_at(server))


def test_a_breaker_opens_after_three_and_rests_longer_each_time() -> None:
    clock = Clock()
    breaker = Breaker(clock)

    def fails() -> bool:
        assert breaker.lets_through()
        return breaker.failed()

    assert [fails(), fails()] == [False, False]
    assert breaker.lets_through() and not breaker.succeeded()
    assert [fails(), fails(), fails()] == [False, False, True]
    for rest_s in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        clock.s += rest_s - 0.001
        assert not breaker.lets_through()
        clock.s += 0.002
        assert breaker.lets_through(), "a trial"
        assert not breaker.lets_through(), "one at a time"
        assert not breaker.failed()
    clock.s += 31.0
    assert breaker.lets_through()
    breaker.did_not_count()
    assert breaker.lets_through(), "the trial was given up; another is made"
    assert breaker.succeeded()
    assert breaker.lets_through() and breaker.lets_through()
