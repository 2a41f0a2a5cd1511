"""Counts of tokens that none can have been: estimated, settled, or asked elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import Answer, answers, completion, reply
from tests.gateway.test_serving import CHAT, settings
from tests.gateway.upstream.scripted import served


def tells(usage: Any) -> Answer:
    """A whole answer with that usage, as raw JSON."""

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        body = {**completion("Hello there"), "usage": "USAGE"}
        raw = reply(200, body).partition(b"\r\n\r\n")[2].replace(b'"USAGE"', usage.encode())
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % len(raw) + raw)
        await writer.drain()

    return answer


@pytest.mark.parametrize("tokens", ["9223372036854775807", '"12"', "null", "1.5", "-5"])
async def test_it_is_estimated(tokens: str) -> None:
    entries: list[Entry] = []
    usage = f'{{"prompt_tokens": {tokens}, "completion_tokens": {tokens}}}'
    async with served(tells(usage)) as provider:
        built = gateway(settings(provider.origin), entries)
        told = await ask(built.app, CHAT)
    assert told.status == 200
    (entry,) = entries
    assert entry.usage_from == "estimated"
    assert entry.cost_nusd is not None and 0 < entry.cost_nusd < 1_000_000


async def test_a_reply_that_cannot_be_read_is_asked_elsewhere() -> None:
    entries: list[Entry] = []
    async with served(tells('{"prompt_tokens": 1e400}')) as bad, served(answers()) as good:
        built = gateway(settings(bad.origin, good.origin), entries)
        told = await ask(built.app, CHAT)
    assert told.status == 200 and told.headers["x-headrace-provider"] == "b"


@pytest.mark.parametrize("then", ["1e400", "9" * 5000])
async def test_a_reply_that_nobody_gives_rightly_is_no_fault_of_ours(then: str) -> None:
    async with served(tells(f'{{"prompt_tokens": {then}}}')) as provider:
        told = await ask(gateway(settings(provider.origin), []).app, CHAT)
    assert told.status == 502
