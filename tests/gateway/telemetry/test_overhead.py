"""The gateway's own share of a stream, on a clock that goes on with each look at it."""

from __future__ import annotations

import asyncio
import itertools

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import DONE, END, STREAM_HEAD, chunk, framed
from tests.gateway.telemetry.scraped import CHAT, settings
from tests.gateway.upstream.scripted import served


async def overhead_us(words: int, path: str) -> int:
    """Of a stream of so many pieces."""

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        for _ in range(words):
            writer.write(framed(chunk({"content": "word "})))
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.write(framed(chunk({}, "stop")) + framed(DONE) + END)

    entries: list[Entry] = []
    looks = itertools.count()
    async with served(answer) as provider:
        built = gateway(
            settings(provider.origin), entries, clock_ns=lambda: next(looks) * 1_000_000
        )
        body = {**CHAT, "stream": True, "max_tokens": 9}
        assert (await ask(built.app, body, path=path)).status == 200
    (entry,) = entries
    assert entry.outcome == "answered"
    return entry.overhead_us


async def test_work_on_pieces_is_counted_and_waiting_for_them_is_not() -> None:
    for path in ("/v1/chat/completions", "/v1/messages"):
        short, long = [await overhead_us(words, path) for words in (1, 6)]
        # A look at the clock is a millisecond: one before and one after the work on a piece.
        assert short + 3_000 <= long <= short + 7_000
