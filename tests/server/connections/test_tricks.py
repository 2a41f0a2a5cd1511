"""What strangers may try: each trick with its outcome; the table is docs/serving.md's as well."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.server.conftest import Running
from tests.server.connections.raw import HEAD, JSON, RawClient, get, post, until
from tests.server.mock_engine import MockEngine, says

Start = Callable[..., Running]
BODY = b'{"prompt": "x"}'
CHUNKED = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
TARGET = b"POST /v1/completions HTTP/1.1\r\n" + JSON
SIZED = b"Content-Length: %d\r\n" % len(BODY)
CODED = b"Transfer-Encoding: chunked\r\n"


class Trick(NamedTuple):
    """What is sent, the reply's status, and whether the connection goes on."""

    name: str
    sent: bytes
    status: int
    goes_on: bool = False
    code: str | None = "bad_request"


TRICKS = [
    Trick("two lengths", TARGET + SIZED + SIZED + b"\r\n" + BODY, 400),
    Trick("two different lengths", TARGET + SIZED + b"Content-Length: 1\r\n\r\n" + BODY, 400),
    Trick("a list of lengths", TARGET + b"Content-Length: 15, 15\r\n\r\n" + BODY, 400),
    Trick("a signed length", TARGET + b"Content-Length: +15\r\n\r\n" + BODY, 400),
    Trick("a negative length", TARGET + b"Content-Length: -1\r\n\r\n" + BODY, 400),
    Trick("an absurd length", TARGET + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
    Trick("a length of thousands of digits",
          TARGET + b"Content-Length: " + b"0" * 5000 + b"15\r\n\r\n" + BODY, 400),
    Trick("a length and chunks", TARGET + SIZED + CODED + b"\r\n" + CHUNKED, 400),
    Trick("chunks and a length", TARGET + CODED + SIZED + b"\r\n" + CHUNKED, 400),
    Trick("a coding twice", TARGET + CODED + CODED + b"\r\n" + CHUNKED, 400),
    Trick("an unknown coding", TARGET + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNKED, 501,
          code="transfer_encoding_not_supported"),
    Trick("packed chunks", TARGET + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNKED, 501,
          code="transfer_encoding_not_supported"),
    Trick("chunks in HTTP/1.0", TARGET.replace(b"1.1", b"1.0") + CODED + b"\r\n" + CHUNKED, 400),
    Trick("a negative chunk", TARGET + CODED + b"\r\n-1\r\nx\r\n0\r\n\r\n", 400),
    Trick("an absurd chunk", TARGET + CODED + b"\r\nfffffffffffffffff\r\nx", 400),
    Trick("chunk lines without CR", TARGET + CODED + b"\r\nf\n" + BODY + b"\n0\n\n", 400),
    Trick("a chunk extension",
          TARGET + CODED + b"\r\nf;a=b\r\n" + BODY + b"\r\n0\r\n\r\n", 200, True),
    Trick("a huge chunk extension",
          TARGET + CODED + b"\r\nf;a=" + b"b" * 70_000 + b"\r\n" + BODY + b"\r\n0\r\n\r\n", 431,
          code="headers_too_large"),
    Trick("a trailer",
          TARGET + CODED + b"\r\nf\r\n" + BODY + b"\r\n0\r\nX-Request-Id: late\r\n\r\n", 200, True),
    Trick("a trailer with a length",
          TARGET + CODED + b"\r\nf\r\n" + BODY + b"\r\n0\r\nContent-Length: 9\r\n\r\n", 400),
    Trick("a folded header", b"GET /version HTTP/1.1\r\n" + HEAD + b"A: b\r\n c\r\n\r\n", 400),
    Trick("a space before the colon", b"GET /version HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    Trick("a space before the name", b"GET /version HTTP/1.1\r\n Host: localhost\r\n\r\n", 400),
    Trick("a header without a name", b"GET /version HTTP/1.1\r\n" + HEAD + b": b\r\n\r\n", 400),
    Trick("a header without a colon", b"GET /version HTTP/1.1\r\n" + HEAD + b"abc\r\n\r\n", 400),
    Trick("NUL in a name", b"GET /version HTTP/1.1\r\n" + HEAD + b"A\0: b\r\n\r\n", 400),
    Trick("NUL in a value", b"GET /version HTTP/1.1\r\n" + HEAD + b"A: b\0c\r\n\r\n", 400),
    Trick("CR in a value", b"GET /version HTTP/1.1\r\n" + HEAD + b"A: b\rB: c\r\n\r\n", 400),
    Trick("lines without CR", b"GET /version HTTP/1.1\nHost: x\n\n", 400),
    Trick("an empty header before another",
          b"GET /version HTTP/1.1\r\nX-Empty:\r\nHost: localhost\r\n\r\n", 200, True),
    Trick("no Host", b"GET /version HTTP/1.1\r\n\r\n", 400),
    Trick("two Hosts", b"GET /version HTTP/1.1\r\n" + HEAD + HEAD + b"\r\n", 400),
    Trick("two keys", get("/version", "Authorization: Bearer a", "Authorization: Bearer b"), 400),
    Trick("two keys of Anthropic's kind", get("/version", "x-api-key: a", "X-API-Key: a"), 400),
    Trick("a Host that is not a name", b"GET /nothing HTTP/1.1\r\nHost: [\r\n\r\n", 403,
          code="unknown_host"),
    Trick("a foreign Host", b"GET /version HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403,
          code="unknown_host"),
    Trick("an absolute URL", b"GET http://evil/version HTTP/1.1\r\n" + HEAD + b"\r\n", 200, True),
    Trick("an absolute URL without a path", b"GET http://evil HTTP/1.1\r\n" + HEAD + b"\r\n", 400),
    Trick("a URL with a fragment", b"GET /version#x HTTP/1.1\r\n" + HEAD + b"\r\n", 200, True),
    Trick("a URL with dots", b"GET /x/../version HTTP/1.1\r\n" + HEAD + b"\r\n", 404, True,
          "not_found"),
    Trick("a URL with two slashes", b"GET //version HTTP/1.1\r\n" + HEAD + b"\r\n", 404, True,
          "not_found"),
    Trick("NUL in a URL", b"GET /%00 HTTP/1.1\r\n" + HEAD + b"\r\n", 404, True, "not_found"),
    Trick("no UTF-8 in a URL", b"GET /%ff HTTP/1.1\r\n" + HEAD + b"\r\n", 404, True, "not_found"),
    Trick("bytes in a URL", b"GET /\xff HTTP/1.1\r\n" + HEAD + b"\r\n", 400),
    Trick("a long URL", get("/" + "x" * 9000), 414, code="url_too_long"),
    Trick("many headers", get("/version", *["A: b"] * 101), 431, code="headers_too_large"),
    Trick("large headers", get("/version", "A: " + "b" * 40_000), 431, code="headers_too_large"),
    Trick("OPTIONS", b"OPTIONS /v1/models HTTP/1.1\r\n" + HEAD + b"\r\n", 405, True,
          "method_not_allowed"),
    Trick("OPTIONS of all", b"OPTIONS * HTTP/1.1\r\n" + HEAD + b"\r\n", 404, True, "not_found"),
    Trick("TRACE", b"TRACE /v1/models HTTP/1.1\r\n" + HEAD + b"\r\n", 405, True,
          "method_not_allowed"),
    Trick("CONNECT", b"CONNECT evil:443 HTTP/1.1\r\n" + HEAD + b"\r\n", 400),
    Trick("an unknown method", b"BREW / HTTP/1.1\r\n" + HEAD + b"\r\n", 400),
    Trick("HTTP/0.9", b"GET /version\r\n\r\n", 505, code="http_version_not_supported"),
    Trick("HTTP/2.0 as text", b"GET /version HTTP/2.0\r\n" + HEAD + b"\r\n", 505,
          code="http_version_not_supported"),
    Trick("HTTP/9.9", b"GET /version HTTP/9.9\r\n" + HEAD + b"\r\n", 400),
    Trick("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    Trick("TLS to a plain port", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 50, 400),
    Trick("empty lines before", b"\r\n\r\n" + get("/version"), 200, True),
    Trick("a WebSocket",
          get("/version", "Connection: Upgrade", "Upgrade: websocket"), 200, True),
    Trick("h2c",
          TARGET + SIZED + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + BODY, 200, True),
    Trick("h2c in chunks",
          TARGET + CODED + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + CHUNKED, 200, True),
    Trick("a packed body", TARGET + SIZED + b"Content-Encoding: gzip\r\n\r\n" + BODY, 415, True,
          "unsupported_encoding"),
    Trick("the encoding identity", TARGET + SIZED + b"Content-Encoding: identity\r\n\r\n" + BODY,
          200, True),
    Trick("a body of another type",
          b"POST /v1/completions HTTP/1.1\r\n" + HEAD + b"Content-Type: text/html\r\n" + SIZED
          + b"\r\n" + BODY, 415, True, "unsupported_media_type"),
    Trick("a GET with a body", get("/version", "Content-Length: 3") + b"abc", 200, True),
]  # fmt: skip


@pytest.mark.parametrize("cut", [None, 1], ids=["at once", "byte by byte"])
@pytest.mark.parametrize("trick", TRICKS, ids=[trick.name for trick in TRICKS])
def test_tricks(start: Start, trick: Trick, cut: int | None) -> None:
    """One reply in the usual shape; then the next request's own reply, or the end."""
    if cut and len(trick.sent) > 1000:
        cut = 500
    server = start(MockEngine(says("abc")))
    with RawClient(server.url) as client:
        size = cut or len(trick.sent)
        for at in range(0, len(trick.sent), size):
            client.send(trick.sent[at : at + size])
        reply = client.reply()
        assert reply.status == trick.status, reply
        assert reply.headers["x-request-id"]
        assert reply.headers["x-request-id"] != "late"
        if trick.status >= 400:
            assert reply.code == trick.code, reply
        if trick.goes_on:
            client.send(get("/v1/models"))
            following = client.reply()
            assert following.status == 200
            assert following.json["object"] == "list"
        else:
            assert reply.headers["connection"] == "close"
            client.send(get("/v1/models"))
            assert client.closed() == b""
    assert server.client.get("/health").status_code == 200


def test_leave_to_send_a_body(start: Start) -> None:
    """100 Continue comes when the body is wanted; where it is not, the reply is the last."""
    server = start(MockEngine(says("abc")))
    with RawClient(server.url) as client:
        head = TARGET + SIZED + b"Expect: 100-continue\r\n"
        client.send(head + b"\r\n")
        assert client.reply().status == 100
        client.send(BODY)
        assert client.reply().status == 200
        client.send(head + b"Content-Encoding: gzip\r\n\r\n")
        reply = client.reply()
        assert (reply.status, reply.headers["connection"]) == (415, "close")
        assert client.closed() == b""


def test_head_has_no_body(start: Start) -> None:
    server = start(MockEngine(says("abc")))
    with RawClient(server.url) as client:
        client.send(b"HEAD /v1/models HTTP/1.1\r\n" + HEAD + b"\r\n")
        assert client.reply(head_only=True).status == 200
        client.send(get("/version"))
        assert client.reply().status == 200


def test_what_is_no_http_behind_a_stream_waits_for_its_end(start: Start) -> None:
    server = start(MockEngine(says("abc", delay_s=0.05)))
    with RawClient(server.url) as client:
        client.send(post("/v1/completions", {"prompt": "x", "stream": True}) + b"\x16\x03\x01\0\0")
        reply = client.reply()
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert client.reply().code == "bad_request"
        assert client.closed() == b""


def test_tricks_in_any_order_and_cut(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is sent, cut wherever, left whenever: no failure, no request left behind."""
    random = Random(20)
    engine = MockEngine(says("abc", delay_s=0.001))
    server = start(engine)
    honest = [get("/version"), post("/v1/completions", {"prompt": "x", "stream": True})]
    with caplog.at_level(logging.INFO):
        for _ in range(150):
            parts = random.choices([trick.sent for trick in TRICKS] + honest * 20, k=5)
            data = b"".join(parts)
            with RawClient(server.url) as client:
                at = 0
                while at < len(data) and random.random() > 0.02:
                    size = random.choice((1, 7, 100, 5000, 100_000))
                    client.send(data[at : at + size])
                    at += size
                if random.random() < 0.5:
                    client.sock.shutdown(1)
                    client.closed()
    assert until(lambda: len(engine.submitted) == len(engine.finished) + len(engine.cancelled))
    assert until(lambda: server.state.open_calls.facts(0.0) == [])
    assert server.client.get("/health").status_code == 200
    bad = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert bad == []


def test_the_guide_has_this_table() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "serving.md").read_text("utf-8")
    table = text.partition("<!-- tricks -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| (.+) \| (\d+) \| (goes on|closed) \|$", table, flags=re.M)
    assert [(name.lower(), int(status), end == "goes on") for name, status, end in rows] == [
        (trick.name.lower(), trick.status, trick.goes_on) for trick in TRICKS
    ]
