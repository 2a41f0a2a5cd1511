"""A provider that plays recorded replies back, in one piece or cut where a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from headrace.gateway.building.gateway import Gateway
from headrace.gateway.serving.entry import Entry
from tests.gateway.cassettes.heard import OWN_PATH
from tests.gateway.cassettes.recordings import Recording, Vendor
from tests.gateway.harness import gateway
from tests.gateway.upstream.scripted import Scripted, served

# Dollars per million tokens: each line of a bill has a price that no sum of others has.
PRICE = {
    "input": 1.003, "output": 7.019, "cache_read": 0.107, "cache_write": 1.301,
    "cache_write_1h": 2.003, "flex_factor": 1, "priority_factor": 1,
}  # fmt: skip
# The same as nano-dollars per million tokens, by line.
RATES = {
    "input_tokens": 1_003_000_000, "input_audio_tokens": 1_003_000_000,
    "cache_read_tokens": 107_000_000, "cache_write_tokens": 1_301_000_000,
    "cache_write_1h_tokens": 2_003_000_000, "output_tokens": 7_019_000_000,
    "reasoning_tokens": 7_019_000_000, "output_audio_tokens": 7_019_000_000,
}  # fmt: skip
_DIALECTS = {"openai-responses": "openai-responses"}


class Player:
    """recording: what is played next. cuts: where it is cut into pieces that are sent apart."""

    def __init__(self) -> None:
        self.recording: Recording | None = None
        self.cuts: Sequence[int] = ()
        self.entries: list[Entry] = []
        self.gateway: Gateway
        self.provider: Scripted

    @property
    def own_path(self) -> str | None:
        """Where clients of the provider's own dialect ask; None if no client speaks it."""
        return OWN_PATH.get(self.gateway.providers["a"].side.name)

    async def answer(self, _number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        """As `served` asks for it."""
        assert self.recording is not None
        reply = wire(self.recording)
        begin = 0
        for cut in (*self.cuts, len(reply)):
            writer.write(reply[begin:cut])
            begin = cut
            await writer.drain()
            for _ in range(2 if self.cuts else 0):
                await asyncio.sleep(0)


def wire(recording: Recording) -> bytes:
    """The recorded reply as HTTP: a stream in chunks that heed no event's end."""
    exchange = recording.exchange
    kind = exchange.headers.get("content-type")
    if recording.stream and not exchange.streamed:
        kind = "text/event-stream"  # some recordings have lost their headers
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind or 'application/json'}\r\n"
    body = exchange.body
    if not recording.stream:
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    step = max(1, len(body) // 7)
    chunks = [body[at : at + step] for at in range(0, len(body), step)]
    framed = b"".join(f"{len(one):x}\r\n".encode() + one + b"\r\n" for one in chunks)
    return f"{head}transfer-encoding: chunked\r\n\r\n".encode() + framed + b"0\r\n\r\n"


def settings_of(vendor: Vendor, port: int) -> dict[str, Any]:
    """A gateway's whose model "chat" is a vendor's, at a port of loopback."""
    provider: dict[str, Any] = {
        "kind": vendor.kind, "base_url": f"http://127.0.0.1:{port}", "api_key": ["k"],
    }  # fmt: skip
    if vendor.name in _DIALECTS:
        provider["dialect"] = _DIALECTS[vendor.name]
    if vendor.kind == "google-vertex":
        provider["google"] = {"project": "p", "location": "global"}
        del provider["api_key"]
    return {
        "providers": {"a": provider},
        "models": {"chat": {"targets": [{"model": "a/m", "price": PRICE}]}},
        "unsupported": "drop",
        "retries": {"attempts": 1},
    }


@asynccontextmanager
async def playing(vendor: Vendor) -> AsyncIterator[Player]:
    """A gateway whose model "chat" is a vendor's, played back on loopback."""
    player = Player()
    async with served(player.answer) as provider:
        player.provider = provider
        player.gateway = gateway(settings_of(vendor, provider.origin.port), player.entries)
        try:
            yield player
        finally:
            player.gateway.close()
