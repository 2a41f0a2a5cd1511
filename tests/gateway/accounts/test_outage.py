"""A Redis that dies is logged and told when it goes and when it is back, asked for or not."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headrace.gateway.accounts import RedisCounters, connect
from tests.gateway.accounts.parts import accounts_of, budget, hierarchy
from tests.gateway.accounts.redis_server import RedisServer, redis_program


class Seconds:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_a_loss_and_its_end_are_told_once_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = RedisServer(redis_program(), tmp_path / "redis")
    clock, told = Seconds(), list[tuple[str, float | None]]()
    counters = RedisCounters(
        connect(server.url), clock_s=clock, on_outage=lambda *news: told.append(news)
    )
    accounts = accounts_of(hierarchy(team=budget(10)), counters=counters)
    caplog.set_level(logging.WARNING)
    server.start()
    await accounts.start()
    await accounts.tick()
    assert told == [] and caplog.messages == []
    server.kill()
    # Nobody asks for anything meanwhile.
    await accounts.tick()
    clock.now_s += 1
    await accounts.tick()
    (lost,) = caplog.records
    assert lost.levelno == logging.ERROR
    assert "Redis" in lost.message and "when_stores_are_down: open" in lost.message
    assert not accounts.describe().counters.reachable
    server.start()
    clock.now_s += 2.5
    try:
        await accounts.tick()
        await accounts.tick()
        assert caplog.messages[1:] == [
            "Redis, which counts limits and budgets, can be reached again after 3.5 s"
        ]
        (began, _), (_, lasted_s) = told
        assert "Redis" in began and lasted_s == 3.5 and told[0][1] is None
        assert accounts.describe().counters.reachable
        assert accounts.describe().counters.problem == ""
    finally:
        await counters.close()
        server.kill()


async def test_one_that_is_not_there_is_known_from_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    redis_program()
    counters = RedisCounters(connect("redis://127.0.0.1:1/0"))
    accounts = accounts_of(hierarchy(team=budget(10)), counters=counters)
    await accounts.start()
    assert not accounts.describe().counters.reachable
    assert len(caplog.messages) == 1
    await counters.close()
