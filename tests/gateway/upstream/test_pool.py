from __future__ import annotations

import asyncio

import pytest

from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.limits import PoolLimits, Timeouts
from headrace.gateway.upstream.origin import Origin
from headrace.gateway.upstream.pool import Pool
from headrace.gateway.upstream.request import request_bytes
from tests.gateway.upstream.scripted import OK, Scripted, served
from tests.waiting import until

QUICK = Timeouts(connect_s=2.0, first_byte_s=2.0, idle_s=2.0)


def request(scripted: Scripted, body: bytes = b"{}") -> bytes:
    return request_bytes("POST", scripted.origin, "/v1/x", (("a", "b"),), body)


async def ok(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)


async def test_a_reply_and_the_next_on_the_same_connection() -> None:
    async with served(ok) as scripted:
        pool = Pool(scripted.origin)
        for _ in range(3):
            reply = await pool.send(request(scripted, b'{"a": 1}'), QUICK)
            assert reply.status == 200 and reply.headers == {"content-length": "2"}
            assert await reply.body(100) == b"hi"
        assert scripted.connections == 1 and pool.resting == pool.connections == 1
        head, _, body = scripted.requests[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/x HTTP/1.1\r\nhost: 127.0.0.1:")
        assert b"accept-encoding: identity" in head and body == b'{"a": 1}'
        pool.close()
    await until(lambda: pool.connections == 0, "the pool without connections")


async def test_after_its_end_what_is_under_way_is_sent_and_nothing_rests() -> None:
    async with served(ok) as scripted:
        pool = Pool(scripted.origin, PoolLimits(connections=1))
        under_way = await pool.send(request(scripted), QUICK)
        waits = asyncio.ensure_future(pool.send(request(scripted), QUICK))
        await asyncio.sleep(0.01)
        pool.close()
        assert await under_way.body(100) == b"hi"
        assert await (await waits).body(100) == b"hi"
        later = await pool.send(request(scripted), QUICK)
        assert await later.body(100) == b"hi" and pool.resting == 0
        await until(lambda: pool.connections == 0, "the pool without connections")


async def test_pieces_come_as_they_are_sent() -> None:
    step = asyncio.Event()

    async def slowly(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await writer.drain()
        await step.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    async with served(slowly) as scripted:
        pool = Pool(scripted.origin)
        reply = await pool.send(request(scripted), QUICK)
        assert await reply.piece() == b"one" and not reply.complete
        step.set()
        assert await reply.piece() == b"two"
        assert await reply.piece() == b"" == await reply.piece()
        assert reply.complete and pool.resting == 1
        pool.close()


async def test_a_connection_that_was_closed_while_it_rested_is_made_anew() -> None:
    async def once(number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        if number == 1 and len(scripted.requests) == 2:
            writer.close()  # after the request has come: as a server that closes what rests
            return
        writer.write(OK)

    async with served(once) as scripted:
        pool = Pool(scripted.origin)
        await (await pool.send(request(scripted), QUICK)).body(9)
        assert await (await pool.send(request(scripted), QUICK)).body(9) == b"hi"
        assert scripted.connections == 2
        pool.close()


async def test_a_new_connection_that_ends_without_a_reply_is_no_excuse_to_send_again() -> None:
    async def goes(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with served(goes) as scripted:
        with pytest.raises(UpstreamError, match="ended before a reply") as caught:
            await Pool(scripted.origin).send(request(scripted), QUICK)
        assert caught.value.problem == "cut" and not caught.value.unsent
        assert len(scripted.requests) == 1
        assert caught.value.failure.kind == "network"


async def test_a_reply_that_breaks_off() -> None:
    async def half(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.close()

    async with served(half) as scripted:
        reply = await Pool(scripted.origin).send(request(scripted), QUICK)
        assert await reply.piece() == b"half"
        with pytest.raises(UpstreamError, match="in the middle of the reply"):
            await reply.piece()


async def test_a_body_that_ends_with_its_connection() -> None:
    async def old(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        await writer.drain()
        writer.close()

    async with served(old) as scripted:
        reply = await Pool(scripted.origin).send(request(scripted), QUICK)
        assert await reply.body(100) == b"all of it"


async def test_time_limits() -> None:
    async def never(_number: int, _request: bytes, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async def stops(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await writer.drain()
        await asyncio.sleep(5)

    async with served(never) as scripted:
        limits = QUICK._replace(first_byte_s=0.05)
        with pytest.raises(UpstreamError, match=r"no reply came within 0\.05 s") as caught:
            await Pool(scripted.origin).send(request(scripted), limits)
        assert caught.value.failure.kind == "timeout"
    async with served(stops) as scripted:
        reply = await Pool(scripted.origin).send(request(scripted), QUICK._replace(idle_s=0.05))
        assert await reply.piece() == b"half"
        with pytest.raises(UpstreamError, match=r"no more of the reply came for 0\.05 s"):
            await reply.piece()


async def test_before_content_a_reply_may_be_silent() -> None:
    async def thinks(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
        for piece in (b"role", b"word"):
            await asyncio.sleep(0.15)
            writer.write(piece)
        await asyncio.sleep(5)

    async with served(thinks) as scripted:
        limits = QUICK._replace(idle_s=0.05)
        reply = await Pool(scripted.origin).send(request(scripted), limits.before_content())
        assert await reply.piece() == b"role" and await reply.piece() == b"word"
        reply.limit_idle(limits.idle_s)
        with pytest.raises(UpstreamError, match=r"no more of the reply came for 0\.05 s"):
            await reply.piece()
        reply.limit_idle(1.0)  # of one that is over it is nothing


async def test_no_connection() -> None:
    pool = Pool(Origin("http", "127.0.0.1", 9))
    with pytest.raises(UpstreamError, match=r"no connection to http://127\.0\.0\.1:9") as caught:
        await pool.send(b"", QUICK)
    assert caught.value.problem == "connect" and caught.value.unsent


async def test_all_connections_are_taken() -> None:
    release = asyncio.Event()

    async def wait(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(OK)

    async with served(wait) as scripted:
        pool = Pool(scripted.origin, PoolLimits(connections=2))
        first = [asyncio.ensure_future(pool.send(request(scripted), QUICK)) for _ in range(2)]
        await until(lambda: len(scripted.requests) == 2, "two requests under way")
        with pytest.raises(UpstreamError, match="all 2 connections") as caught:
            await pool.send(request(scripted), QUICK._replace(connect_s=0.05))
        assert caught.value.problem == "busy"
        waiting = asyncio.ensure_future(pool.send(request(scripted), QUICK))
        gives_up = asyncio.ensure_future(pool.send(request(scripted), QUICK))
        await asyncio.sleep(0.02)
        gives_up.cancel()
        release.set()
        for reply in (await first[0], await first[1], await waiting):
            assert await reply.body(9) == b"hi"
        assert scripted.connections == 2
        pool.close()


async def test_who_reads_slowly_holds_the_provider_back_and_not_memory() -> None:
    sent = 0

    async def much(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 40000000\r\n\r\n")
        for _ in range(400):
            writer.write(bytes(100_000))
            sent += 100_000
            await writer.drain()

    async with served(much) as scripted:
        pool = Pool(scripted.origin, PoolLimits(held_bytes=50_000))
        reply = await pool.send(request(scripted), QUICK)
        await asyncio.sleep(0.2)
        assert sent < 20_000_000, "nobody reads, and all of it was taken"
        size = 0
        while piece := await reply.piece():
            size += len(piece)
        assert size == 40_000_000 and pool.resting == 1
        pool.close()


async def test_an_aborted_reply_ends_its_connection() -> None:
    async def begins(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await writer.drain()
        await asyncio.sleep(5)

    async with served(begins) as scripted:
        pool = Pool(scripted.origin)
        reply = await pool.send(request(scripted), QUICK)
        reply.abort()
        reply.abort()
        await until(lambda: pool.connections == 0, "the pool without connections")
        assert pool.resting == 0


async def test_a_cancelled_request_ends_its_connection() -> None:
    async def never(_number: int, _request: bytes, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async with served(never) as scripted:
        pool = Pool(scripted.origin)
        task = asyncio.ensure_future(pool.send(request(scripted), QUICK))
        await until(lambda: scripted.requests, "the request under way")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: pool.connections == 0, "the pool without connections")


async def test_what_rests_too_long_is_closed() -> None:
    async with served(ok) as scripted:
        pool = Pool(scripted.origin, PoolLimits(rest_s=0.05))
        await (await pool.send(request(scripted), QUICK)).body(9)
        assert pool.resting == 1
        await asyncio.sleep(0.2)
        assert pool.resting == pool.connections == 0


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 20_000, "head is longer"),
        (b"\x15\x03\x01\x00\x02\x02\x50", "speaks TLS"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi", "not HTTP/1.1"),
    ],
)
async def test_what_is_no_http(answer: bytes, match: str) -> None:
    async def strange(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    async with served(strange) as scripted:
        with pytest.raises(UpstreamError, match=match):
            await Pool(scripted.origin).send(request(scripted), QUICK)


async def test_more_than_was_asked_for_ends_the_connection() -> None:
    async def twice(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil")

    async with served(twice) as scripted:
        pool = Pool(scripted.origin)
        assert await (await pool.send(request(scripted), QUICK)).body(9) == b"hi"
        await until(lambda: pool.connections == 0, "the pool without connections")


async def test_a_body_beyond_its_limit() -> None:
    async with served(ok) as scripted:
        reply = await Pool(scripted.origin).send(request(scripted), QUICK)
        with pytest.raises(UpstreamError, match="more than 1 bytes"):
            await reply.body(1)


@pytest.mark.parametrize("target", ["v1", "/a b", "/a\r\nx: y", "/ä"])
def test_paths_that_would_break_the_head(target: str) -> None:
    with pytest.raises(ValueError, match="path"):
        request_bytes("POST", Origin("http", "a", 80), target, ())


@pytest.mark.parametrize(
    ("name", "value"), [("a", "b\r\nc: d"), ("a b", "c"), ("", "c"), ("a", "x\0")]
)
def test_headers_that_would_break_the_head(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="header"):
        request_bytes("POST", Origin("http", "a", 80), "/", ((name, value),))
