"""Recorded exchanges of OpenAI's completions, played back through a whole gateway."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import END, STREAM_HEAD, framed
from tests.gateway.upstream.scripted import served
from tests.protocol.dialects.openai_completions.test_recorded import ARCHIVES, recorded
from tests.protocol.neutral.cassettes import Exchange

pytestmark = pytest.mark.usefixtures("recordings")


def plays(exchange: Exchange) -> Any:
    """Its body, a stream cut every 97 bytes."""

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        body = exchange.body
        if not exchange.streamed:
            head = (
                f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
            )
            writer.write(head.encode() + b"\r\n\r\n" + body)
            return
        writer.write(STREAM_HEAD)
        for at in range(0, len(body), 97):
            writer.write(framed(body[at : at + 97]))
        writer.write(END)

    return answer


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("archive", ARCHIVES)
async def test_they_go_through_and_are_billed(archive: str, stream: bool) -> None:
    found = recorded(archive, stream=stream)[:8]
    assert len(found) >= 2
    for exchange in found:
        asked = json.loads(exchange.request)
        entries: list[Entry] = []
        async with served(plays(exchange)) as provider:
            settings = {
                "providers": {"a": {"base_url": f"{provider.origin}/v1", "completions": True}},
                "models": {"m": {"targets": [f"a/{asked['model']}"]}},
            }
            built = gateway(settings, entries)
            raw = exchange.request.replace(json.dumps(asked["model"]).encode(), b'"m"', 1)
            told = await ask(built.app, raw, path="/v1/completions")
            built.close()
            sent = json.loads(provider.requests[0].partition(b"\r\n\r\n")[2])
        options = sent.pop("stream_options", None)
        wants = (asked.pop("stream_options", None) or {}).get("include_usage") is True
        assert sent == asked, exchange.at
        assert (options is not None) == stream
        if wants or not stream:
            assert told.body == exchange.body, exchange.at
        usage = b'"total_tokens"' in exchange.body
        assert entries[0].outcome == "answered"
        assert entries[0].usage_from == ("provider" if usage else "estimated")
