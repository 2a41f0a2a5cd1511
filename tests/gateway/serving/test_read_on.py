"""A client that leaves with the whole answer pays for the whole answer."""

from __future__ import annotations

import asyncio

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import DONE, END, STREAM_HEAD, chunk, framed, usage_chunk
from tests.gateway.telemetry.scraped import settings
from tests.gateway.upstream.scripted import served


async def test_the_count_behind_the_content_is_waited_for() -> None:
    async def slow_to_count(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk({"content": "x" * 300}) + chunk({}, "stop")))
        await writer.drain()
        await asyncio.sleep(0.2)
        writer.write(framed(usage_chunk()) + framed(DONE) + END)

    entries: list[Entry] = []
    async with served(slow_to_count) as provider:
        body = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": "x"}]}
        await ask(gateway(settings(provider.origin), entries).app, body, goes_after=1)
    (line,) = entries
    assert (line.outcome, line.usage_from) == ("client_gone", "provider")
    assert line.usage is not None and line.usage.completion_tokens == 3


async def test_an_answer_that_was_not_at_its_end_is_let_go_of_at_once() -> None:
    left = asyncio.Event()

    async def endless(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD)
        try:
            while not writer.is_closing():
                writer.write(framed(chunk({"content": "on "})))
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            pass
        left.set()

    entries: list[Entry] = []
    async with served(endless) as provider:
        body = {"model": "chat", "stream": True, "messages": [{"role": "user", "content": "x"}]}
        await ask(gateway(settings(provider.origin), entries).app, body, goes_after=2)
        async with asyncio.timeout(1.0):
            await left.wait()
    assert entries[0].usage_from == "estimated"
