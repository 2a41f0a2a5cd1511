"""Scores through a whole gateway: whose they are, where they are kept, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.errors import ConfigError
from headrace.gateway.accounts import MemoryCounters, Records, secret_of
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.feedback.report import Scores, scores_by
from headrace.gateway.feedback.score import Score
from headrace.gateway.feedback.scores_file import MOST_NAMES, ScoresFile
from headrace.gateway.ledger.days import Days, days_of
from headrace.gateway.ledger.schema import reading
from headrace.gateway.ledger.store import LedgerStore
from headrace.gateway.serving.entry import Entry
from tests.gateway.accounts.parts import KEY, OTHER_KEY, Clock, key_record, random_bytes
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.ledger.entries import DAY_S, NOVEMBER_S, entry, written
from tests.gateway.openai_provider import answers
from tests.gateway.test_serving import CHAT, settings
from tests.gateway.upstream.scripted import served

MASTER = {"authorization": "Bearer the-master-key"}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


class Rated(NamedTuple):
    gateway: Gateway
    path: Path

    async def give(self, headers: dict[str, str], **body: Any) -> Told:
        return await ask(self.gateway.app, body, path="/v1/feedback", headers=headers)

    def report(self, *by: str, name: str | None = None, days: Days | None = None) -> list[Scores]:
        with reading(self.path) as connection:
            return scores_by(connection, by, name, days or Days())


class Lines(list[Entry]):
    """Goes to a ledger as well."""

    def __init__(self, ledger: LedgerStore) -> None:
        super().__init__()
        self._ledger = ledger

    def append(self, entry: Entry) -> None:
        super().append(entry)
        self._ledger.take(entry)


@asynccontextmanager
async def rated(folder: Path) -> AsyncIterator[Rated]:
    """A gateway with a ledger and two keys."""
    accounts = Accounts(MemoryCounters(), now_ns=Clock(), random_bytes=random_bytes())
    other = key_record(id="other", secrets=(secret_of(OTHER_KEY),))
    accounts.reconfigure(Records(keys=(key_record(id="mine"), other)))
    path = folder / "ledger.sqlite3"
    async with served(answers()) as provider:
        ledger = LedgerStore.open(path, retention_days=None, wall_s=lambda: 1_790_000_000.0)
        given = settings(
            provider.origin,
            ledger={"path": str(path)},
            access={"require_key": True, "master_key": "env:MASTER"},
        )
        environ = {"MASTER": "the-master-key"}
        built = gateway(given, Lines(ledger), accounts=accounts, environ=environ)
        try:
            yield Rated(built, path)
        finally:
            built.close()
            ledger.close()


async def test_whoever_got_an_answer_may_score_it(tmp_path: Path) -> None:
    async with rated(tmp_path) as one:
        told = await ask(one.gateway.app, CHAT, headers=bearer(KEY))
        request = told.headers["x-request-id"]
        # At once: the ledger's line may not be written yet.
        given = await one.give(bearer(KEY), request_id=request, score=0.5, comment="so so")
        assert given.status == 200
        assert given.json == {
            "object": "feedback", "request_id": request, "name": "quality", "score": 0.5,
            "variant": "", "replaced": False,
        }  # fmt: skip
        stranger = await one.give(bearer(OTHER_KEY), request_id=request, score=1)
        assert stranger.status == 404 and stranger.json["error"]["code"] == "request_not_found"
        by_master = await one.give(MASTER, request_id=request, score=0.9)
        assert by_master.status == 200 and not by_master.json["replaced"]
        again = await one.give(bearer(KEY), request_id=request, score=0.7)
        assert again.json["replaced"], "one score for each request, name and key: the later wins"
        thumb = await one.give(
            bearer(KEY), request_id=request, score=True, name="thumb", variant="b"
        )
        assert thumb.json["score"] == 1.0 and thumb.json["variant"] == "b"
        found = one.report("model", "target", "variant", "name", "key")
    assert [(list(each.by.values()), each.count, each.mean) for each in found] == [
        (["chat", "a/m0", "", "quality", "master"], 1, 0.9),
        (["chat", "a/m0", "", "quality", "mine"], 1, 0.7),
        (["chat", "a/m0", "b", "thumb", "mine"], 1, 1.0),
    ]


async def test_what_is_no_score(tmp_path: Path) -> None:
    async with rated(tmp_path) as one:
        for body, said in (
            ({"request_id": "req-1"}, "score"),
            ({"request_id": "req-1", "score": "good"}, "true or false or a number is expected"),
            ({"request_id": "req-1", "score": 1e10}, "score: expected a number from"),
            ({"request_id": "", "score": 1}, "request_id: text of length >= 1 is expected"),
            ({"request_id": "req-1", "score": 1, "scor": 2}, "known are request_id, score"),
            ({"request_id": "req-1", "score": 1, "comment": "x" * 5000}, "comment: text of length"),
        ):
            told = await one.give(MASTER, **body)
            assert told.status == 400 and said in told.json["error"]["message"], told.json
        for raw in (b"", b"[1]", b"\xff", b'{"score": 1e400, "request_id": "x"}', b"[" * 100_000):
            told = await ask(one.gateway.app, raw, path="/v1/feedback", headers=MASTER)
            assert told.status == 400, raw[:20]
        assert (await one.give({}, request_id="x", score=1)).status == 401
        nobody = await one.give(MASTER, request_id="no-such", score=1)
        assert nobody.status == 404
        with reading(one.path) as connection:
            assert scores_by(connection, ["model"], None, Days()) == []


async def test_names_have_an_end(tmp_path: Path) -> None:
    async with rated(tmp_path) as one:
        told = await ask(one.gateway.app, CHAT, headers=bearer(KEY))
        request = told.headers["x-request-id"]
        for number in range(MOST_NAMES):
            given = await one.give(bearer(KEY), request_id=request, score=1, name=f"name {number}")
            assert given.status == 200
        more = await one.give(bearer(KEY), request_id=request, score=1, name="another")
        assert more.status == 400 and more.json["error"]["code"] == "too_many_scores"
        again = await one.give(bearer(KEY), request_id=request, score=0, name="name 0")
        assert again.json["replaced"]


async def test_without_a_ledger() -> None:
    async with served(answers()) as provider:
        built = gateway(settings(provider.origin), [])
        body = {"request_id": "x", "score": 1}
        told = await ask(built.app, body, path="/v1/feedback")
    assert told.status == 501 and "set ledger.path" in told.json["error"]["message"]


async def test_a_ledger_that_cannot_be_opened(tmp_path: Path) -> None:
    broken = tmp_path / "ledger.sqlite3"
    broken.write_bytes(b"not a database" * 1000)
    async with served(answers()) as provider:
        built = gateway(settings(provider.origin, ledger={"path": str(broken)}), [])
        told = await ask(built.app, {"request_id": "x", "score": 1}, path="/v1/feedback")
    assert told.status == 503 and "send it again later" in told.json["error"]["message"]
    assert broken.read_bytes() == b"not a database" * 1000


def score(number: int, value: float, **more: Any) -> Score:
    given: dict[str, Any] = {
        "request_id": f"req-{number}", "name": "quality", "key": "", "score": value, "comment": "",
        "model": "chat", "target": "a/m", "variant": "", "at_ms": (NOVEMBER_S + number) * 1000,
        "given_ms": 0,
    }  # fmt: skip
    return Score(**{**given, **more})


def report(folder: Path, scores: list[Score], *by: str, **more: Any) -> list[Scores]:
    path = written(folder / "ledger", entry())
    file = ScoresFile(path)
    for one in scores:
        file.keep(one, None)
    with reading(path) as connection:
        return scores_by(connection, by, more.get("name"), more.get("days", Days()))


def test_means_and_intervals(tmp_path: Path) -> None:
    scores = [score(at, value, variant="a") for at, value in enumerate((1.0, 2.0, 4.0, 5.0))]
    scores += [score(9 + at, value, variant="b") for at, value in enumerate((1, 1, 1, 0))]
    scores.append(score(20, 3.5, variant="c"))
    a, b, c = report(tmp_path, scores, "variant")
    assert (a.count, a.mean) == (4, 3.0)
    # t(0.975, 3) * sqrt(10 / 3 / 4), by hand.
    assert a.low == pytest.approx(3 - 3.182 * 0.912871, abs=1e-4)
    assert a.high == pytest.approx(3 + 3.182 * 0.912871, abs=1e-4)
    # Wilson's for 3 of 4, as published tables have it.
    assert (b.mean, b.low, b.high) == (
        0.75,
        pytest.approx(0.3006, abs=1e-3),
        pytest.approx(0.9544, abs=1e-3),
    )
    assert (c.count, c.low, c.high) == (1, None, None)


def test_large_scores_lose_no_digits(tmp_path: Path) -> None:
    values = [1e9 - 1, 1e9 - 2, 1e9 - 3]
    (one,) = report(tmp_path, [score(at, value) for at, value in enumerate(values)], "model")
    assert one.low is not None and one.mean - one.low == pytest.approx(4.303 / 3**0.5, rel=1e-3)


def test_days_names_and_what_there_is_not(tmp_path: Path) -> None:
    scores = [score(1, 1), score(2, 0, at_ms=(NOVEMBER_S + DAY_S) * 1000), score(1, 5, name="fun")]
    by_day = report(tmp_path, scores, "day", name="quality")
    assert [(one.by["day"], one.mean) for one in by_day] == [("2026-11-01", 1), ("2026-11-02", 0)]
    days = days_of("2026-11-02", None)
    (late,) = report(tmp_path, [], "name", days=days)
    assert late.count == 1
    for by in (("modell",), ("model", "model")):
        with pytest.raises(ConfigError, match="--by"):
            report(tmp_path, [], *by)


def test_scores_of_old_requests_go_with_new_ones(tmp_path: Path) -> None:
    path = written(tmp_path / "ledger", entry())
    file = ScoresFile(path)
    assert not file.keep(score(1, 1), None)
    assert not file.keep(score(100, 1), (NOVEMBER_S + 50) * 1000)
    with reading(path) as connection:
        (left,) = scores_by(connection, ["model"], None, Days())
    assert left.count == 1


async def test_many_at_once_while_the_ledger_writes(tmp_path: Path) -> None:
    async with rated(tmp_path) as one:
        told = [await ask(one.gateway.app, CHAT, headers=bearer(KEY)) for _ in range(20)]
        given = await asyncio.gather(
            *(
                one.give(bearer(KEY), request_id=each.headers["x-request-id"], score=at % 2)
                for at, each in enumerate(told)
            ),
            *(ask(one.gateway.app, CHAT, headers=bearer(KEY)) for _ in range(20)),
        )
        assert {each.status for each in given} == {200}
        (all_of_them,) = one.report("name")
    assert (all_of_them.count, all_of_them.mean) == (20, 0.5)
