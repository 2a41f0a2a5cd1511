"""Requests one by one: pages, filters, details, and lines as they come."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headrace.gateway.admin.feed import Feed
from headrace.gateway.feedback.scores_file import ScoresFile
from headrace.gateway.serving.entry import AttemptEntry
from tests.gateway.admin.house import House, admin
from tests.gateway.feedback.test_feedback import score
from tests.gateway.harness import ask
from tests.gateway.ledger.entries import NOVEMBER_S, entry, refused

FAILED = AttemptEntry(
    target="b/x", began_ms=0.0, lasted_ms=7.0, failure="server", status=500, message="It BOOMED"
)
ENTRIES = (
    *(entry(number, key="k1") for number in range(1, 8)),
    entry(8, model="other", at_s=float(NOVEMBER_S)),
    entry(9, attempts=(FAILED,), outcome="failed", target=None),
    refused(10, key="k2", error="50% off_"),
    entry(11, id="req-9", purpose="judge", parent="req-9"),
)


async def lines(house: House, **query: Any) -> list[str]:
    told = (await house.client.get("/api/log", params=query)).json()
    return [one["entry"]["id"] for one in told["lines"]]


async def test_pages_have_every_request_once_the_newest_first(tmp_path: Path) -> None:
    async with admin(tmp_path, entries=ENTRIES) as house:
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            told = (await house.client.get(f"/api/log?limit=3&cursor={cursor}")).json()
            assert told["from_ledger"] and len(told["lines"]) <= 3
            found += [one["entry"]["id"] for one in told["lines"]]
            cursor = told["cursor"]
        assert found == [
            "req-9", "req-10", "req-9", *(f"req-{at}" for at in range(7, 0, -1)), "req-8",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"model": "other"}, ["req-8"]),
        ({"outcome": "refused"}, ["req-10"]),
        ({"key": "k1", "limit": 2}, ["req-7", "req-6"]),
        ({"text": "boomed"}, ["req-9"]),
        ({"text": "50% OFF_"}, ["req-10"]),
        ({"text": "5_%"}, []),
        ({"text": "req-3"}, ["req-3"]),
        ({"text": "k1", "key": "k2"}, []),
    ],
)
async def test_filters(query: dict[str, Any], found: list[str], tmp_path: Path) -> None:
    async with admin(tmp_path, entries=ENTRIES) as house:
        assert await lines(house, **query) == found


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=x",
        "outcome=good",
        "cursor=1",
        "cursor=a.b",
        "lim=1",
        "in=all",
    ],
)
async def test_bad_queries_are_refused(query: str, tmp_path: Path) -> None:
    async with admin(tmp_path) as house:
        assert (await house.client.get(f"/api/log?{query}")).status_code == 400


async def test_a_request_with_what_was_paid_for_besides(tmp_path: Path) -> None:
    async with admin(tmp_path, entries=ENTRIES) as house:
        for query in ("", f"?at_s={NOVEMBER_S + 9}"):
            told = (await house.client.get(f"/api/log/req-9{query}")).json()
            main, besides = told["lines"]
            assert main["entry"]["attempts"][0]["message"] == "It BOOMED"
            assert besides["entry"]["purpose"] == "judge"
            assert told["record"] is None and told["keeps_bodies"] is False
            assert told["feedback"] == []
        ScoresFile(tmp_path / "ledger.sqlite3").keep(score(9, 0.5, comment="too <b>long"), None)
        (given,) = (await house.client.get("/api/log/req-9")).json()["feedback"]
        assert (given["score"], given["comment"]) == (0.5, "too <b>long")
        assert (await house.client.get("/api/log/req-99")).status_code == 404
        for odd in ("x", "nan", "1e400", "-1"):
            assert (await house.client.get(f"/api/log/req-9?at_s={odd}")).status_code == 400
        told = await house.client.get("/api/log?in=bodies&text=x")
        assert (told.status_code, told.json()["error"]["code"]) == (409, "no_request_log")


async def test_without_a_ledger_the_last_lines_are_in_memory(tmp_path: Path) -> None:
    async with admin(tmp_path, entries=None) as house:
        for one in ENTRIES:
            house.feed.take(one)
        told = (await house.client.get("/api/log?limit=2&key=k1")).json()
        assert [one["entry"]["id"] for one in told["lines"]] == ["req-7", "req-6"]
        assert (told["from_ledger"], told["cursor"]) == (False, None)
        assert len((await house.client.get("/api/log/req-9")).json()["lines"]) == 2


async def test_a_request_of_a_client_is_in_it_with_its_cost(tmp_path: Path) -> None:
    async with admin(tmp_path, access={"require_key": False}) as house:
        await ask(house.gateway.app, {"model": "own", "messages": []})
        (line,) = (await house.client.get("/api/log")).json()["lines"]
        assert line["cost_usd"] == "0.000018"
        assert (line["prompt_tokens"], line["completion_tokens"]) == (12, 3)


async def test_a_slow_listener_loses_the_oldest_and_is_told(tmp_path: Path) -> None:
    feed = Feed()
    with feed.listening(lambda one: one.model == "chat", 3) as listener:
        for number in range(10):
            feed.take(entry(number))
        feed.take(entry(99, model="other"))
        assert listener.take_lost() == 7 and listener.take_lost() == 0
        assert [(await listener.next()).id for _ in range(3)] == ["req-7", "req-8", "req-9"]
        waiting = asyncio.ensure_future(listener.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        feed.take(entry(10))
        assert (await waiting).id == "req-10"
    assert feed.listeners == 0
