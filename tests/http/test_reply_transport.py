"""How many writes a reply is, and in what order."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from headrace.http.reply_transport import ReplyTransport

HEAD, BODY = b"HTTP/1.1 200 OK\r\n\r\n", b"{}"


class _Written:
    """A transport that keeps what is written, in order; `close` is b""."""

    def __init__(self) -> None:
        self.all: list[bytes] = []
        self.closing = False

    def write(self, data: bytes) -> None:
        assert not self.closing, "written to a connection that is closing"
        self.all.append(data)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.all.append(b"")


@pytest.fixture
def written() -> _Written:
    return _Written()


def _reply(written: _Written) -> ReplyTransport:
    transport = cast("Any", written)
    return ReplyTransport(transport, asyncio.get_running_loop(), written.close)


async def test_the_head_goes_out_with_the_first_piece_and_others_alone(written: _Written) -> None:
    reply = _reply(written)
    reply.write(HEAD)
    reply.write(BODY)
    reply.write(BODY)
    assert written.all == [HEAD + BODY, BODY]
    await asyncio.sleep(0)
    assert written.all == [HEAD + BODY, BODY]


async def test_a_head_with_nothing_behind_it_does_not_wait(written: _Written) -> None:
    reply = _reply(written)
    reply.write(HEAD)
    assert written.all == []
    await asyncio.sleep(0)
    assert written.all == [HEAD]
    reply.write(BODY)
    assert written.all == [HEAD, BODY]


async def test_a_large_body_is_not_copied(written: _Written) -> None:
    reply, large = _reply(written), bytes(1 << 17)
    reply.write(HEAD)
    reply.write(large)
    assert written.all[0] == HEAD and written.all[1] is large


async def test_a_reply_that_is_a_head_alone_is_out_before_the_connection_closes(
    written: _Written,
) -> None:
    reply = _reply(written)
    reply.write(HEAD)
    reply.close()
    assert written.all == [HEAD, b""]
    await asyncio.sleep(0)
    assert written.all == [HEAD, b""]


async def test_nothing_is_written_to_a_client_that_has_gone(written: _Written) -> None:
    reply = _reply(written)
    reply.write(HEAD)
    written.closing = True
    await asyncio.sleep(0)
    assert written.all == []
