"""Streams that do not end by themselves, in size or in time, are ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headrace.gateway.serving import stream_watch
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.stream_watch import (
    BYTES_PER_TOKEN,
    SILENT_PAUSES,
    StreamWatch,
    most_stream_bytes,
)
from headrace.gateway.upstream.errors import UpstreamError
from headrace.protocol.neutral.event import ReplyEnd
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.openai_provider import STREAM_HEAD, chunk, framed
from tests.gateway.upstream.scripted import served

EVENTS = (ReplyEnd(),)
PATHS = {"openai-chat": "/v1/chat/completions", "anthropic": "/v1/messages"}


def watch_at(times_s: list[float], **limits: Any) -> StreamWatch:
    """The clock shows each of `times_s` in turn."""
    clock: Callable[[], int] = iter([round(time_s * 1e9) for time_s in times_s]).__next__
    return StreamWatch(**({"most_bytes": 100, "idle_s": 2.0} | limits), clock_ns=clock)


def test_a_stream_ends_at_its_size() -> None:
    watch = watch_at([])
    watch.took(b"x" * 60, EVENTS, silent=True)
    watch.took(b"x" * 40, EVENTS, silent=True)
    with pytest.raises(UpstreamError, match="more than 100 bytes"):
        watch.took(b"x", EVENTS, silent=True)


def test_comments_do_not_keep_a_stream_alive() -> None:
    longest_s = SILENT_PAUSES * 2.0
    watch = watch_at([1000, 1000 + longest_s, 2000, 2000 + longest_s, 2001 + longest_s])
    watch.took(b":\n\n", (), silent=True)
    watch.took(b":\n\n", (), silent=True)
    watch.took(b"x", EVENTS, silent=True)
    watch.took(b":\n\n", (), silent=True)
    watch.took(b":\n\n", (), silent=True)
    with pytest.raises(UpstreamError, match=r"comments and no content for 10 s"):
        watch.took(b":\n\n", (), silent=True)


@pytest.mark.parametrize(("events", "silent"), [(EVENTS, True), ((), False)])
def test_events_and_parts_of_media_do(events: tuple[ReplyEnd, ...], silent: bool) -> None:
    watch = watch_at([9.0 * at for at in range(5)])
    for _ in range(5):
        watch.took(b":", (), silent=True)
        watch.took(b"x", events, silent=silent)


def test_without_a_longest_pause_comments_may_go_on() -> None:
    watch = watch_at([], idle_s=None)
    for _ in range(3):
        watch.took(b"x", (), silent=True)


def test_a_request_for_many_tokens_may_have_a_longer_stream() -> None:
    assert most_stream_bytes(2**26, None, 4) == 2**26
    assert most_stream_bytes(2**26, 1000, 4) == 2**26
    assert most_stream_bytes(2**26, 2**15, 4) == 2**17 * BYTES_PER_TOKEN


async def heard(client: str, piece: bytes, **timeouts: float) -> tuple[Told, Entry, int]:
    """The reply to a client where a provider sends some content and then `piece` for ever, the
    ledger's line, and the bytes that the provider sent."""
    sent_bytes = 0

    async def endless(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal sent_bytes
        writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": "Hello"})))
        while True:  # until the gateway cuts the connection
            writer.write(framed(piece))
            await writer.drain()
            sent_bytes += len(piece)
            await asyncio.sleep(0.02 if piece.startswith(b":") else 0)

    entries: list[Entry] = []
    async with served(endless) as scripted:
        settings = {
            "providers": {"p": {"base_url": f"{scripted.origin}/v1", "dialect": "openai-chat"}},
            "models": {"chat": ["p/m"]},
            "listen": {"max_reply_bytes": 100_000},
            "timeouts": {"total_s": 30, **timeouts},
        }
        body = {
            "model": "chat", "stream": True, "max_tokens": 8,
            "messages": [{"role": "user", "content": "Hi"}],
        }  # fmt: skip
        told = await ask(gateway(settings, entries).app, body, path=PATHS[client])
        return told, entries[-1], sent_bytes


@pytest.mark.parametrize("client", PATHS)
@pytest.mark.parametrize(
    ("piece", "timeouts", "problem"),
    [
        (chunk({"content": "x" * 1000}), {}, b"more than 100,000 bytes"),
        (b": ping\n\n", {"idle_s": 2.0}, b"comments and no content for 0.5 s"),
    ],
    ids=["content", "comments"],
)
async def test_the_client_learns_why_its_stream_ended(
    client: str,
    piece: bytes,
    timeouts: dict[str, float],
    problem: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_watch, "SILENT_PAUSES", 0.25)  # a pause of 2 s is never reached
    told, entry, sent_bytes = await heard(client, piece, **timeouts)
    assert told.status == 200 and b"Hello" in told.body
    assert problem in told.body.rpartition(b"data: {")[2]
    assert entry.outcome == "cut" and problem.decode() in entry.error
    assert sent_bytes < 10_000_000, "the gateway reads no further"
