"""Providers that die, hang or send garbage: whoever can be answered is, and the bill is right."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gateway.chaos.faults import (
    BEFORE_CONTENT,
    FAULTS,
    GOOD,
    HARMLESS,
    MID_ANSWER,
    Provider,
    reset,
)
from tests.gateway.upstream.scripted import read_request, served
from tests.gateway.workers.gateway_process import (
    KEY,
    MASTER,
    Running,
    Told,
    ledger_rows,
    running,
    until,
)

pytestmark = pytest.mark.process

PRICE = {"input": 1, "output": 2}
# Longest wait for the first content, which a hundred requests on two loaded cores can keep, plus
# what those may take beside it.
FIRST_TOKEN_S, SLACK_S = 3.0, 8.0


class Case(NamedTuple):
    fault: str
    stream: bool
    falls_back: bool


def settings(origin: object) -> dict[str, Any]:
    """A model for each fault, and a good one."""
    return {
        "access": {"master_key": MASTER, "keys": {"k": {"key": KEY}}},
        "providers": {"p": {"base_url": f"{origin}/v1"}},
        "models": {name: [{"model": f"p/{name}", "price": PRICE}] for name in (*FAULTS, GOOD)},
        "timeouts": {
            "connect_s": 2, "first_token_s": FIRST_TOKEN_S, "idle_s": 2, "total_s": 20,
        },
        "retries": {"attempts": 2, "same_target": 1, "backoff_s": 0.01},
        "ledger": {"path": "ledger.sqlite3"},
        "log": {"level": "debug"},
    }  # fmt: skip


async def asked(gateway: Running, case: Case) -> tuple[Told, float]:
    """A request, and how long it took."""
    more: dict[str, Any] = {"models": [GOOD]} if case.falls_back else {}
    began_s = time.monotonic()
    told = await gateway.chat(model=case.fault, stream=case.stream, **more)
    return told, time.monotonic() - began_s


def complaint(case: Case, told: Told, took_s: float) -> str | None:
    """What is wrong with what a client was told."""
    if took_s > FIRST_TOKEN_S + SLACK_S:
        return f"it took {took_s:.1f} s"
    is_whole = b"Hello" in told.body and b"there" in told.body
    if case.fault in HARMLESS or (
        case.falls_back and (case.fault in BEFORE_CONTENT or not case.stream)
    ):
        return None if told.status == 200 and is_whole else f"{told.status} {told.body[:200]!r}"
    if case.fault in MID_ANSWER and case.stream:
        said = told.status == 200 and b"half of it" in told.body and b'"error"' in told.body
        return None if said and b"[DONE]" not in told.body else f"{told.body[:300]!r}"
    try:
        error = json.loads(told.body)["error"]
    except (ValueError, KeyError):
        return f"{told.status} without an error: {told.body[:200]!r}"
    fine = 500 <= told.status < 600 and error["message"] and "x-request-id" in told.headers
    return None if fine else f"{told.status} {error}"


async def test_every_fault_is_survived_told_and_billed_right(tmp_path: Path) -> None:
    cases = [
        Case(fault, stream, falls_back)
        for fault in FAULTS
        for stream in (False, True)
        for falls_back in (False, True)
    ]
    provider = Provider()
    async with served(provider.answer) as scripted:
        async with running(tmp_path, settings(scripted.origin), workers=1) as gateway:
            found = await asyncio.gather(*(asked(gateway, one) for one in cases))
            health = (await gateway.fresh("GET", "/health", key=MASTER)).json
            still = await gateway.chat(model=GOOD)
        wrong = [
            f"{case}: {said}"
            for case, (told, took_s) in zip(cases, found, strict=True)
            if (said := complaint(case, told, took_s)) is not None
        ]
        assert not wrong, "\n".join(wrong)
        assert still.status == 200, "and it is as well as before"
    slowest = max(took_s for _, took_s in found)
    print(f"{len(cases)} faults; the slowest was over after {slowest:.2f} s")
    in_flight = [
        one["in_flight"] for model in health["models"].values() for one in model["targets"]
    ]
    assert sum(in_flight) == 0
    every = ledger_rows(
        tmp_path, "id, outcome, target, usage_from, input_tokens, output_tokens, cost_nusd, purpose"
    )
    # What was sent and got no reply is billed on lines of its own, by an estimate of the prompt.
    besides = [one for one in every if one[7]]
    assert besides
    for one in besides:
        assert (one[1], one[3], one[5], one[7]) == ("failed", "estimated", 0, "attempt")
    rows = [one for one in every if not one[7]]
    assert len({one[0] for one in rows}) == len(rows) == len(cases) + 1, "a line for each, once"
    good = [one for one in rows if one[2] == f"p/{GOOD}"]
    assert provider.counted[GOOD] == len(good)
    assert sum(one[4] for one in good) == provider.billed["in"]
    assert sum(one[5] for one in good) == provider.billed["out"]
    assert (
        sum(one[6] for one in good)
        == 1_000 * provider.billed["in"] + 2_000 * (provider.billed["out"])
    )
    cut = [one for one in rows if one[1] == "cut"]
    # What of half an answer was read is billed, by an estimate, whether or not others could answer.
    assert len(cut) == 2 * len(MID_ANSWER)
    assert all(one[3] == "estimated" and one[6] > 0 for one in cut)


async def test_a_provider_that_comes_back_is_asked_again(tmp_path: Path) -> None:
    """It dies under load and is started again at the same port."""
    provider = Provider()
    writers: set[asyncio.StreamWriter] = set()
    server = await asyncio.start_server(_connection(provider, writers), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = settings(f"http://127.0.0.1:{port}")
    config["breaker"] = {"cooldown_s": 0.5, "cooldown_max_s": 1, "window_s": 5, "min_attempts": 3}
    async with running(tmp_path, config, workers=1) as gateway:
        assert (await gateway.chat(model=GOOD)).status == 200
        server.close()
        for one in writers:
            reset(one)
        died = [await gateway.chat(model=GOOD) for _ in range(12)]
        assert {one.status for one in died} <= {502, 503}
        server = await asyncio.start_server(_connection(provider, writers), "127.0.0.1", port)
        began_s = time.monotonic()

        async def is_back() -> bool:
            return (await gateway.chat(model=GOOD)).status == 200

        await until(is_back, within_s=5)
        recovered_s = time.monotonic() - began_s
        print(f"a provider that came back was asked again after {recovered_s:.2f} s")
        assert recovered_s < 3, "cooldown_max_s is 1"
    server.close()
    rows = ledger_rows(tmp_path, "outcome, input_tokens")
    answered = [one for one in rows if one[0] == "answered"]
    assert sum(one[1] for one in answered) == provider.billed["in"]
    assert len(rows) >= 14


def _connection(provider: Provider, writers: set[asyncio.StreamWriter]) -> Any:
    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            while request := await read_request(reader):
                await provider.answer(0, request, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writers.discard(writer)
            writer.close()

    return connection
