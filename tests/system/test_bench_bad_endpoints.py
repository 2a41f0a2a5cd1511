"""`headrace bench load` against endpoints with which something is wrong.

Whatever happens: one line says what went wrong and how often, the exit status is the documented
one, what was measured is kept, nothing waits longer than its limits, and no key is shown.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import ssl
import threading
from pathlib import Path

import pytest
import trustme

from headrace.bench.load import probe
from tests.bench.misbehaving import (
    DONE,
    GOOD_EVENTS,
    LAST_PIECE,
    STOP,
    Answer,
    Request,
    always,
    event,
    good_body,
    good_reply,
    misbehaving,
    piece,
    stream_head,
    then_closed,
    usage,
    whole,
)
from tests.system.bench_load_process import KEY, LIMIT_S, REQUESTS, load, load_apart, silent


def stream(*events: bytes, end: bytes = LAST_PIECE) -> bytes:
    return stream_head() + piece(b"".join(events)) + end


async def byte_by_byte(_request: Request, writer: asyncio.StreamWriter) -> bool:
    for byte in good_reply():
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    return True


async def slow_bytes(_request: Request, writer: asyncio.StreamWriter) -> bool:
    for byte in good_reply():
        writer.write(bytes([byte]))
        await asyncio.sleep(0.3)
    return True


async def endless(_request: Request, writer: asyncio.StreamWriter) -> bool:
    writer.write(stream_head())
    while True:
        writer.write(piece(event(content="x")))
        await writer.drain()
        await asyncio.sleep(0.02)


async def one_long_line(_request: Request, writer: asyncio.StreamWriter) -> bool:
    writer.write(stream_head() + piece(b"data: "))
    for _ in range(20):
        writer.write(piece(b"x" * 2**20))
        await writer.drain()
    return False


async def endless_head(_request: Request, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 200 OK\r\nx-endless: ")
    while True:
        writer.write(b"y" * 4096)
        await writer.drain()


def refusing(status: int, body: bytes, kind: str = "application/json", **headers: str) -> Answer:
    return always(whole(status, body, kind, **headers))


NO = b'{"error":{"message":"no"}}'
ECHO = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}."}}).encode()
ERROR = event(error={"message": "out of memory"})
BAD_BYTES = b'data: {"choices":[{"delta":{"content":"\xff\xfe"}}]}\n\n'
OBJECT = b'{"choices":[{"message":{"content":"a"}}]}'
PAGE = b"<!doctype html><p>hello"
ELSEWHERE = "https://user:word@elsewhere.example/v1?key=1"
EVENTS, HTML, TEXT = "text/event-stream", "text/html", "text/plain"


@pytest.mark.load
@pytest.mark.parametrize(
    ("answer", "kind", "told"),
    [
        (refusing(400, NO), "http", "HTTP 400: no (4 http)"),
        (refusing(403, NO), "http", "HTTP 403, the key may not do this: no (4 http); set"),
        (refusing(429, NO, retry_after="7"), "http", "retry after 7 s: no (4 http); lower -c"),
        (refusing(429, b""), "http", "HTTP 429, too many requests for this endpoint (4 http)"),
        (refusing(503, b"busy", TEXT), "http", "HTTP 503: busy (4 http); the server's log"),
        (
            refusing(307, b"", location=ELSEWHERE),
            "http",
            "redirect to https://elsewhere.example/v1",
        ),
        (refusing(200, PAGE, HTML), "protocol", "HTML in place of a stream of events"),
        (refusing(200, OBJECT), "protocol", "use --no-streaming for whole replies"),
        (refusing(200, OBJECT, TEXT), "protocol", "use --no-streaming for whole replies"),
        (
            refusing(200, gzip.compress(good_body()), EVENTS, content_encoding="gzip"),
            "protocol",
            "the reply is compressed (gzip)",
        ),
        (one_long_line, "protocol", "an event of the stream is longer than 16,777,216 bytes"),
        (endless_head, "protocol", "the head of the reply is longer than 65,536 bytes"),
        (
            always(stream(*GOOD_EVENTS[:3], end=b""), keep=False),
            "truncated",
            "bytes of the reply, which has more (4 truncated); the server's log",
        ),
        (
            always(stream(*GOOD_EVENTS[:3])),
            "truncated",
            "the stream ended after 3 events, unfinished",
        ),
        (
            always(stream(GOOD_EVENTS[1], ERROR, GOOD_EVENTS[2], DONE)),
            "stream",
            "the server reported: out of memory (4 stream); the server's log",
        ),
    ],
)
def test_nothing_succeeds(answer: Answer, kind: str, told: str, tmp_path: Path) -> None:
    with misbehaving(answer) as url:
        ran = load(url, tmp_path)
    assert ran.status == 3, ran
    assert ran.line.startswith("headrace: nothing succeeded: ")
    assert told in ran.line
    assert ran.failures == {kind: REQUESTS}
    if kind in ("truncated", "stream"):
        assert all(one.content for one in ran.run.requests)
    assert "failed" in ran.output


@pytest.mark.load
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (refusing(401, ECHO), "set HEADRACE_BENCH_API_KEY or OPENAI_API_KEY"),
        (
            refusing(404, PAGE, HTML),
            "HTTP 404, there is no such path or no such model: an HTML page",
        ),
    ],
)
def test_what_every_request_would_meet_ends_the_run(
    answer: Answer, told: str, tmp_path: Path
) -> None:
    with misbehaving(answer) as url:
        ran = load(url, tmp_path)
    assert ran.status == 3, ran
    assert ran.line.startswith("headrace: nothing succeeded: ")
    assert told in ran.line
    assert set(ran.failures) == {"http"}
    assert 1 <= ran.failures["http"] <= 2 < REQUESTS


@pytest.mark.load
@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (always(good_reply()), "a b"),
        (byte_by_byte, "a b"),
        (always(stream(good_body())), "a b"),
        (always(stream(good_body(event(**usage(2)), event(**usage(2))))), "a b"),
        (always(stream(BAD_BYTES, *GOOD_EVENTS, DONE)), "\ufffd\ufffda b"),
        (always(stream(event(role="assistant"), STOP, event(**usage(0)), DONE)), ""),
        (then_closed(stream(good_body())), "a b"),
    ],
    ids=["good", "bytes", "no usage", "usage twice", "not UTF-8", "no tokens", "closes"],
)
def test_odd_and_right(answer: Answer, content: str, tmp_path: Path) -> None:
    with misbehaving(answer) as url:
        ran = load(url, tmp_path)
    assert (ran.status, ran.line, ran.failures) == (0, "", {})
    for one in ran.run.requests:
        assert "".join(chunk.text for chunk in one.content) == content


@pytest.mark.process
def test_a_process_of_its_own_ends_as_the_others_here(tmp_path: Path) -> None:
    with misbehaving(always(good_reply())) as url:
        ran = load_apart(url, tmp_path / "good")
    assert (ran.status, ran.line, ran.failures) == (0, "", {})
    with misbehaving(refusing(401, ECHO)) as url:
        ran = load_apart(url, tmp_path / "refused")
    assert (ran.status, set(ran.failures)) == (3, {"http"})
    assert ran.line.startswith("headrace: nothing succeeded: ")


@pytest.mark.load
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (endless, "bytes of it came (4 timeout); raise --timeout, or lower the load"),
        (slow_bytes, "no reply came within 0.3 s (4 timeout)"),
        (silent, "no reply came within 0.3 s (4 timeout)"),
    ],
)
def test_limits_of_time_hold(answer: Answer, told: str, tmp_path: Path) -> None:
    with misbehaving(answer) as url:
        ran = load(url, tmp_path, "--timeout", "0.3")
    assert (ran.status, ran.failures) == (3, {"timeout": REQUESTS})
    assert told in ran.line


@pytest.mark.load
def test_a_run_ends_though_its_streams_do_not(tmp_path: Path) -> None:
    with misbehaving(endless) as url:
        ran = load(url, tmp_path, "--duration", "0.3", "--grace", "0.1", requests=None)
    assert ran.status == 3
    assert "the run ended before the reply was complete (2 cancelled); raise --dur" in ran.line
    assert all(one.content for one in ran.run.requests)


@pytest.mark.load
def test_a_storm_is_no_flood(tmp_path: Path) -> None:
    """Users who are refused at once wait a moment: two of them send at most 20 a second."""
    seen: list[int] = []

    async def storm(request: Request, writer: asyncio.StreamWriter) -> bool:
        seen.append(request.number)
        return await refusing(429, NO)(request, writer)

    with misbehaving(storm) as url:
        ran = load(url, tmp_path / "out", "--duration", "1", requests=None)
    assert ran.status == 3
    assert 2 <= len(seen) <= 21 + 2
    assert ran.failures["http"] == len(seen)


@pytest.mark.load
def test_some_fail(tmp_path: Path) -> None:
    """The failure that came most often is told, and how often each class came."""

    async def mixed(request: Request, writer: asyncio.StreamWriter) -> bool:
        reply = {0: good_reply(), 1: whole(500, NO)}.get(request.number, whole(200, PAGE, HTML))
        return await always(reply)(request, writer)

    with misbehaving(mixed) as url:
        ran = load(url, tmp_path)
        assert ran.status == 1
        assert "3 of 4 requests failed, more than --max-error-rate 0 allows: HTML" in ran.line
        assert "(2 protocol, 1 http)" in ran.line
    with misbehaving(mixed) as url:
        ran = load(url, tmp_path, "--max-error-rate", "0.75")
        assert (ran.status, ran.line) == (0, "")


def test_nobody_is_there(tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound and not listening
        taken.bind(("127.0.0.1", 0))
        ran = load(f"http://127.0.0.1:{taken.getsockname()[1]}", tmp_path)
    assert ran.status == 3
    assert "refused the connection; is the server running, and on that port? (connect" in ran.line
    ran = load("http://no-such-host.invalid/v1", tmp_path)
    assert ran.status == 3
    assert "the host no-such-host.invalid was not found" in ran.line


def test_somebody_accepts_and_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_TIMEOUT_S", 0.3)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        ran = load(f"http://127.0.0.1:{listening.getsockname()[1]}", tmp_path)
    assert ran.status == 3
    assert "no reply came within 0.3 s (timeout, at /v1/models)" in ran.line


@pytest.mark.process
def test_tls_and_none_taken_for_one_another(tmp_path: Path) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with misbehaving(always(good_reply()), tls=context) as url:
        ran = load(url, tmp_path)
        assert ran.status == 3
        assert "is not trusted" in ran.line
        assert "SSL_CERT_FILE" in ran.line
        ran = load(url.replace("https:", "http:"), tmp_path)
        assert ran.status == 3
        assert "https://" in ran.line
        authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
            ran = load(url, tmp_path / "out")
        assert (ran.status, ran.failures) == (0, {})

    async def http_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(whole(400, b""))
        writer.close()

    ready, done = threading.Event(), threading.Event()
    port = 0

    async def serve() -> None:
        nonlocal port
        server = await asyncio.start_server(http_only, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        ready.set()
        await asyncio.to_thread(done.wait)
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait(LIMIT_S)
    ran = load(f"https://127.0.0.1:{port}", tmp_path)
    done.set()
    thread.join(LIMIT_S)
    assert ran.status == 3
    assert "does it need http://?" in ran.line


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (whole(401, ECHO), "HTTP 401, the key is missing or wrong"),
        (b"SSH-2.0-x\r\n", "is this the port of the API?"),
        (b"", "is it an HTTP server, or does it need https://?"),
    ],
)
def test_the_first_question_finds_out(reply: bytes, told: str, tmp_path: Path) -> None:
    posts: list[int] = []

    async def post(request: Request, writer: asyncio.StreamWriter) -> bool:
        posts.append(request.number)
        return await always(good_reply())(request, writer)

    with misbehaving(post, get=always(reply, keep=False)) as url:
        ran = load(url, tmp_path)
    assert (ran.status, posts) == (3, [])
    assert f"{url} cannot be measured: " in ran.line
    assert told in ran.line
