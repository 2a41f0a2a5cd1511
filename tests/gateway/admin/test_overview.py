"""Numbers over time, and the reports."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from headrace.gateway.ledger.schema import reading
from headrace.gateway.ledger.usage import usage_by
from headrace.protocol.neutral.usage import TokenUsage
from tests.gateway.admin.house import admin
from tests.gateway.ledger.entries import DAY_S, NOVEMBER_S, entry, refused

NOW_S = NOVEMBER_S + DAY_S / 2
ENTRIES = (
    entry(1, at_s=NOW_S - 7200, total_ms=10.0, first_token_ms=1.0),
    entry(2, at_s=NOW_S - 7190, total_ms=30.0, first_token_ms=3.0, key="k"),
    entry(3, at_s=NOW_S - 100, outcome="failed", cost_nusd=None, usage=None, usage_from="none"),
    entry(4, at_s=NOW_S - 90, cache="hit", cost_nusd=0),
    entry(5, at_s=NOW_S - 80, cost_nusd=None, usage=TokenUsage(input_tokens=1, output_tokens=1)),
    refused(6, at_s=NOW_S - 70, model="=cmd()"),
    entry(7, at_s=NOW_S - 60, cost_nusd=2**53 + 1),
)


async def test_the_totals_are_those_of_the_ledger(tmp_path: Path) -> None:
    async with admin(tmp_path, entries=ENTRIES, wall_s=NOW_S) as house:
        told = (await house.client.get("/api/overview?by=hour")).json()
    with reading(tmp_path / "ledger.sqlite3") as connection:
        (whole,) = usage_by(connection)
    totals = told["totals"]
    assert totals["requests"] == whole.requests == 7
    assert (totals["errors"], totals["refused"], totals["cache_hits"]) == (1, 1, 1)
    assert totals["cost_nusd"] == whole.cost_nusd == 2**53 + 1 + 36_000
    assert totals["cost_usd"] == "9007199.254776993", "exact, beyond what a float holds"
    assert totals["unknown_cost"] == 1
    assert totals["input_tokens"] == whole.input_tokens
    assert totals["total_ms_p99"] == whole.total_ms_p99 == 30.0
    for name in ("requests", "errors", "cost_nusd", "input_tokens", "output_tokens"):
        assert sum(one[name] for one in told["series"]) == totals[name]


@pytest.mark.parametrize(
    ("by", "length_s", "number"), [("minute", 60, 60), ("hour", 3600, 24), ("day", 86_400, 30)]
)
async def test_every_part_of_the_time_is_there_once(
    by: str, length_s: int, number: int, tmp_path: Path
) -> None:
    async with admin(tmp_path, entries=ENTRIES, wall_s=NOW_S) as house:
        told = (await house.client.get("/api/overview", params={"by": by})).json()
    times = [one["at_s"] for one in told["series"]]
    assert times == list(range(told["since_s"], told["before_s"], length_s))
    assert len(times) == number and told["since_s"] % length_s == 0
    assert times[-1] <= NOW_S < told["before_s"]
    quiet = next(one for one in told["series"] if one["requests"] == 0)
    assert quiet["cost_usd"] == "0.00" and quiet["total_ms_p50"] is None


async def test_a_time_as_it_was_asked_for(tmp_path: Path) -> None:
    async with admin(tmp_path, entries=ENTRIES, wall_s=NOW_S) as house:

        async def requests(**query: str) -> int:
            told = await house.client.get("/api/overview", params={"by": "day", **query})
            return int(told.json()["totals"]["requests"])

        assert await requests(since="2026-11-01") == 7
        assert await requests(since="2026-11-02", until="2026-11-03") == 0
        assert await requests(since="2026-10-01", until="2026-11-01") == 7
        assert await requests(since=str(NOW_S - 95)) == 7, "parts are whole"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("by=week", "one of minute, hour, day"),
        ("since=yesterday", "'yesterday' is not a time"),
        ("since=9e99", "is not a time"),
        ("since=99999999999999", "is not a time"),
        ("since=2026-11-02&until=2026-11-01", "give the earlier one first"),
        ("by=minute&since=2020-01-01", "give a shorter time"),
        ("sinse=2026-11-01", "did you mean"),
        ("by=day&by=hour", "given twice"),
    ],
)
async def test_bad_times_say_what_is_wrong(query: str, said: str, tmp_path: Path) -> None:
    async with admin(tmp_path, wall_s=NOW_S) as house:
        told = await house.client.get(f"/api/overview?{query}")
    assert told.status_code == 400 and said in told.json()["error"]["message"]


async def test_without_a_ledger_it_says_how_to_have_one(tmp_path: Path) -> None:
    async with admin(tmp_path, entries=None) as house:
        for path in ("/api/overview", "/api/usage"):
            told = await house.client.get(path)
            assert (told.status_code, told.json()["error"]["code"]) == (409, "no_ledger")
            assert "ledger: {path:" in told.json()["error"]["message"]


async def test_reports_as_json_and_for_spreadsheets(tmp_path: Path) -> None:
    async with admin(tmp_path, entries=ENTRIES, wall_s=NOW_S) as house:
        report = (await house.client.get("/api/usage?by=model,key")).json()
        text = (await house.client.get("/api/usage?by=model,key&format=csv")).text
        odd = await house.client.get("/api/usage?by=modell")
    assert report["by"] == ["model", "key"]
    assert [(one["model"], one["key"], one["requests"]) for one in report["rows"]] == [
        ("=cmd()", "", 1), ("chat", "", 5), ("chat", "k", 1),
    ]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [one["model"] for one in rows] == ["'=cmd()", "chat", "chat"], "no formula for a sheet"
    assert [int(one["cost_nusd"]) for one in rows] == [one["cost_nusd"] for one in report["rows"]]
    assert odd.status_code == 400 and "did you mean" in odd.text
