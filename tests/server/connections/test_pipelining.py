"""Several requests in one write: answered in order, whole, once each, whatever happens between."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from headrace.engine.messages import Output, Submit
from headrace.http.client_limits import AHEAD_BYTES, MAX_PIPELINED
from tests.server.conftest import Running
from tests.server.connections.raw import HEAD, RawClient, get, post, until
from tests.server.mock_engine import MockEngine, output, says

Start = Callable[..., Running]


def ask(text: str, *, stream: bool = False) -> bytes:
    return post("/v1/completions", {"prompt": text, "stream": stream})


async def echo(submit: Submit) -> AsyncIterator[Output]:
    """The prompt, byte by byte."""
    for token_id in submit.prompt_token_ids:
        await asyncio.sleep(0.001)
        yield output(submit, [token_id])
    yield output(submit, [], "length")


@pytest.mark.parametrize("cut", [None, 50, 1])
def test_replies_come_in_order(start: Start, cut: int | None) -> None:
    engine = MockEngine(echo)
    server = start(engine)
    sent = (
        ask("first") + ask("second", stream=True) + get("/v1/models") + get("/nothing")
        + ask("third") + ask("fourth", stream=True) + get("/version")
    )  # fmt: skip
    with RawClient(server.url) as client:
        for at in range(0, len(sent), cut or len(sent)):
            client.send(sent[at : at + (cut or len(sent))])
        assert client.reply().json["choices"][0]["text"] == "first"
        streamed = client.reply().body
        assert streamed.count(b"data: ") == 6 + 1 + 1
        assert streamed.endswith(b"[DONE]\n\n")
        assert client.reply().json["object"] == "list"
        assert client.reply().status == 404
        assert client.reply().json["choices"][0]["text"] == "third"
        assert client.reply().body.endswith(b"[DONE]\n\n")
        assert "version" in client.reply().json
        client.send(get("/health"))
        assert client.reply().status == 200
    assert len(engine.submitted) == len(engine.finished) == 4


def test_a_request_does_not_begin_before_its_turn(start: Start) -> None:
    """What waits behind a stream takes nothing of the engine, and runs once."""
    release = threading.Event()

    async def held(submit: Submit) -> AsyncIterator[Output]:
        yield output(submit, [*b"a"])
        while not release.is_set():
            await asyncio.sleep(0.005)
        yield output(submit, [*b"b"], "length")

    engine = MockEngine(held)
    server = start(engine)
    with RawClient(server.url) as client:
        client.send(ask("one", stream=True) + ask("two") + ask("three", stream=True))
        client.received = client.until(b'"a"') + client.received
        assert not until(lambda: len(engine.submitted) > 1, 0.2)
        release.set()
        assert client.reply().body.endswith(b"[DONE]\n\n")
        assert client.reply().json["choices"][0]["text"] == "ab"
        assert client.reply().body.endswith(b"[DONE]\n\n")
    prompts = [bytes(submit.prompt_token_ids) for submit in engine.submitted]
    assert prompts == [b"one", b"two", b"three"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize("behind", [1, 5])
def test_going_away_ends_the_one_in_work_and_those_behind(
    start: Start, stream: bool, reset: bool, behind: int
) -> None:
    """Also where the engine says nothing, so that nothing is written that could fail."""

    async def silent(submit: Submit) -> AsyncIterator[Output]:
        await asyncio.sleep(60)
        yield output(submit, [])

    engine = MockEngine(silent)
    server = start(engine)
    with RawClient(server.url) as client:
        client.send(ask("one", stream=stream))
        assert until(lambda: len(engine.submitted) == 1)
        client.send(ask("behind") * behind)
        client.send(b"POST /v1/completions HTTP/1.1\r\n" + HEAD + b"Content-Length: 9\r\n\r\n{")
        assert not until(lambda: len(engine.cancelled) > 0, 0.1)
        if reset:
            client.sock.setsockopt(1, 13, b"\1\0\0\0\0\0\0\0")  # SO_LINGER 0
    assert until(lambda: len(engine.cancelled) == 1, 2.0)
    assert not until(lambda: len(engine.submitted) > 1, 0.2)


def test_many_are_taken_a_few_at_a_time(start: Start) -> None:
    server = start(MockEngine(echo))
    number = 20 * MAX_PIPELINED
    with RawClient(server.url) as client:
        sender = threading.Thread(target=client.send, args=(get("/version") * number,))
        sender.start()
        for _ in range(number):
            assert client.reply().status == 200
        sender.join()
        client.send(get("/health"))
        assert client.reply().status == 200


def test_large_bodies_behind_a_stream(start: Start) -> None:
    """More than the server reads ahead: nothing is lost."""
    engine = MockEngine(says("abc", delay_s=0.05))
    server = start(engine)
    large = post("/tokenize", {"prompt": "y" * (AHEAD_BYTES // 2)})
    with RawClient(server.url) as client:
        sent = ask("x", stream=True) + 4 * large + get("/version")
        sender = threading.Thread(target=client.send, args=(sent,))
        sender.start()
        assert client.reply().body.endswith(b"[DONE]\n\n")
        for _ in range(4):
            assert client.reply().json["count"] >= AHEAD_BYTES // 2
        assert client.reply().status == 200
        sender.join()


def test_nothing_follows_a_reply_that_closes(start: Start) -> None:
    engine = MockEngine(says("abc"))
    server = start(engine)
    with RawClient(server.url) as client:
        first = post("/v1/completions", {"prompt": "x"}, "Connection: close")
        client.send(first + ask("y") * 3)
        assert client.reply().headers["connection"] == "close"
        assert client.closed() == b""
    assert len(engine.submitted) == 1


def test_a_refusal_in_the_middle(start: Start) -> None:
    """A 415 whose body is read away, between two others."""
    server = start(MockEngine(says("abc")))
    packed = post("/v1/completions", {"prompt": "x" * 5000}, "Content-Encoding: gzip")
    with RawClient(server.url) as client:
        client.send(ask("x") + packed + ask("y"))
        assert [client.reply().status for _ in range(3)] == [200, 415, 200]
