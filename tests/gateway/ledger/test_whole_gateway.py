"""Whatever becomes of requests, the ledger's sums are those of the providers and the estimates."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateway.ledger.newest import EntryFilter, newest
from headrace.gateway.ledger.schema import reading
from headrace.gateway.ledger.store import LedgerStore
from headrace.gateway.ledger.usage import Usage, usage_by
from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import (
    DONE,
    END,
    STREAM_HEAD,
    body_of,
    chunk,
    completion,
    framed,
    reply,
)
from tests.gateway.upstream.scripted import served

# Nano-dollars per token: $1 and $2 per million, and half of the first for what was cached.
PRICE = {"input": 1.0, "output": 2.0, "cache_read": 0.5}
WALL_S = 1_790_000_000.0

KINDS = ("whole", "stream", "fallback", "cut", "failed", "gone", "gone_at_once", "refused", "free")
REQUESTS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 9), st.integers(1, 999), st.integers(1, 999)),
    min_size=1,
    max_size=12,
)


class Provider:
    """Does what a request's own text says, and counts what it would bill."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.hanging = 0

    async def answer(self, _number: int, request: bytes, writer: asyncio.StreamWriter) -> None:
        asked = body_of(request)
        kind, cached, fresh, output = json.loads(asked["messages"][0]["content"])
        if kind == "failed" or (kind == "fallback" and asked["model"] == "m0"):
            writer.write(reply(500, {"error": {"message": "no"}}))
            return
        if kind == "gone_at_once":
            self.hanging += 1
            await asyncio.sleep(5)
        usage = {
            "prompt_tokens": cached + fresh,
            "completion_tokens": output,
            "total_tokens": cached + fresh + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        if not asked.get("stream"):
            writer.write(reply(200, {**completion("Hello"), "usage": usage}))
            self._count(cached, fresh, output)
            return
        writer.write(STREAM_HEAD + framed(chunk({"content": "w" * output})))
        await writer.drain()
        if kind == "gone":
            await asyncio.sleep(5)
        if kind == "cut":
            await asyncio.sleep(0.01)
            writer.close()
            return
        event = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m",
                 "choices": [], "usage": usage}  # fmt: skip
        writer.write(
            framed(chunk({}, "stop")) + framed(b"data: %b\n\n" % json.dumps(event).encode())
        )
        writer.write(framed(DONE) + END)
        self._count(cached, fresh, output)

    def _count(self, cached: int, fresh: int, output: int) -> None:
        self.counted.update(
            requests=1, cache_read_tokens=cached, input_tokens=fresh, output_tokens=output
        )


class Kept(list[Entry]):
    """What a gateway tells, kept here and in a ledger."""

    def __init__(self, ledger: LedgerStore) -> None:
        super().__init__()
        self._ledger = ledger

    def append(self, entry: Entry) -> None:
        super().append(entry)
        self._ledger.take(entry)


def config(origin: Any) -> dict[str, Any]:
    """Two targets that are paid for, and one whose price nobody knows."""
    one = {"base_url": f"{origin}/v1", "dialect": "openai-chat"}
    targets = [{"model": f"{name}/m{at}", "price": PRICE} for at, name in enumerate("ab")]
    return {
        "providers": {"a": one, "b": one},
        "models": {"chat": {"strategy": "ordered", "targets": targets}, "free": ["a/m2"]},
        "retries": {"backoff_s": 0.001, "backoff_max_s": 0.002},
        "breaker": {"min_attempts": 1000},
    }


async def asked(app: Any, request: tuple[str, int, int, int], all_hang: Callable[[], bool]) -> None:
    kind = request[0]
    body: dict[str, Any] = {
        "model": {"free": "free", "refused": "nobody"}.get(kind, "chat"),
        "messages": [{"role": "user", "content": json.dumps(request)}],
        "stream": kind in ("stream", "fallback", "cut", "gone", "gone_at_once"),
    }
    await ask(
        app,
        body,
        goes_after=1 if kind == "gone" else None,
        goes_when=all_hang if kind == "gone_at_once" else None,
    )


async def all_asked(
    ledger: LedgerStore, provider: Provider, requests: list[tuple[str, int, int, int]]
) -> list[Entry]:
    entries = Kept(ledger)
    hanging = provider.hanging + sum(kind == "gone_at_once" for kind, *_ in requests)

    def all_hang() -> bool:
        return provider.hanging == hanging

    async with served(provider.answer) as scripted:
        built = gateway(config(scripted.origin), entries)
        await asyncio.gather(*(asked(built.app, one, all_hang) for one in requests))
        built.close()
    return entries


def usage_of(path: Path, *by: str) -> list[Usage]:
    with reading(path) as connection:
        return usage_by(connection, by)


@pytest.mark.load
@settings(deadline=None, max_examples=25)
@given(REQUESTS, REQUESTS)
def test_the_ledger_adds_up(
    before: list[tuple[str, int, int, int]], after: list[tuple[str, int, int, int]]
) -> None:
    provider = Provider()
    entries: list[Entry] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        for requests in (before, after):  # with a restart between
            ledger = LedgerStore.open(path, retention_days=None, wall_s=lambda: WALL_S)
            entries += asyncio.run(all_asked(ledger, provider, requests))
            ledger.close()
            assert ledger.standing[1:] == (0, 0, "")
        (whole,) = usage_of(path)
        with reading(path) as connection:
            kept = newest(connection, EntryFilter(limit=100))
    kinds = Counter(kind for kind, *_ in before + after)
    assert sorted(kept, key=repr) == sorted(entries, key=repr)
    assert whole.requests == kinds.total()
    assert (whole.failed, whole.refused, whole.cut) == (
        kinds["failed"], kinds["refused"], kinds["cut"],
    )  # fmt: skip
    assert whole.client_gone == kinds["gone"] + kinds["gone_at_once"]

    estimates = [one.usage for one in kept if one.usage_from == "estimated" and one.usage]
    assert whole.estimated == len(estimates)
    assert whole.estimated == kinds["cut"] + kinds["gone"] + kinds["gone_at_once"]
    assert whole.estimated + provider.counted["requests"] == sum(
        kinds[one] for one in ("whole", "stream", "fallback", "cut", "gone", "gone_at_once", "free")
    )
    for name in ("input_tokens", "cache_read_tokens", "output_tokens"):
        estimated = sum(getattr(one, name) for one in estimates)
        assert getattr(whole, name) == provider.counted[name] + estimated
    # A token for three bytes of what was seen of it.
    seen = [output for kind, _, _, output in before + after if kind in ("cut", "gone")]
    assert sum(one.output_tokens for one in estimates) == sum(-(-one // 3) for one in seen)

    unpriced = [one for one in before + after if one[0] == "free"]
    assert whole.unknown_cost == len(unpriced)
    assert whole.cost_nusd == (
        1000 * (whole.input_tokens - sum(fresh for _, _, fresh, _ in unpriced))
        + 500 * (whole.cache_read_tokens - sum(cached for _, cached, _, _ in unpriced))
        + 2000 * (whole.output_tokens - sum(output for *_, output in unpriced))
    )
