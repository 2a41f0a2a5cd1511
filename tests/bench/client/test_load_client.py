"""The client over loopback: what the mock was told to do is found in the records.

Counts, kinds and orders are exact. Times are held against the mock's own stamps, with room for a
machine that does other things; that they are true is shown on an idle one, by a benchmark.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Coroutine

import pytest
import trustme
import uvloop

from headrace.bench.client import load_client
from headrace.bench.client.endpoints import Endpoint, build_request
from headrace.bench.client.exchange import ClientConnection
from headrace.bench.client.load_client import LoadClient
from headrace.bench.client.prompt import Prompt
from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.http import RECEIVED_HEADER
from headrace.bench.mock.settings import MockSettings
from headrace.bench.record import CONTENT_KINDS, RequestRecord, Usage
from tests.bench.client.wire import MS, QUICK, ask, ask_mock, ask_script, client_of, scripted
from tests.bench.misbehaving import (
    LAST_PIECE,
    good_body,
    misbehaving,
    piece,
    stream_head,
    then_closed,
)
from tests.waiting import until

# As much as a busy machine with two cores keeps a process from running.
SLACK_NS = 2_000 * MS


def check_times(record: RequestRecord, ttft_ms: float, tpot_ms: float) -> None:
    """Programmed times, which nothing undercuts, within what the machine may add."""
    content = record.content
    assert record.sent_ns is not None
    assert record.end_ns is not None
    for chunk in record.chunks:
        assert chunk.stamped_ns is not None
        assert 0 <= chunk.at_ns - chunk.stamped_ns < SLACK_NS
    ttft_ns = content[0].at_ns - record.sent_ns
    # The last byte is with the server before the client has read its clock, and the mock's timers
    # end up to a millisecond early.
    assert -3 * MS <= ttft_ns - ttft_ms * MS < SLACK_NS
    tokens = record.output_tokens
    assert tokens is not None
    if tokens > 1:
        stamped = [chunk.stamped_ns or 0 for chunk in content]
        lasted_ns = stamped[-1] - stamped[0]
        assert abs(lasted_ns - tpot_ms * MS * (tokens - 1)) < SLACK_NS


@pytest.mark.parametrize("chunk", [1, 3, "uniform:1:4"])
async def test_programmed_times_are_recovered(chunk: str | int) -> None:
    settings = MockSettings(ttft_ms=40, tpot_ms=4, tokens_per_chunk=chunk, reasoning_tokens=5)
    record = await ask_mock(settings, Prompt(text="one two three", max_tokens=17))
    check_times(record, 40, 4)
    assert record.failure is None
    assert record.usage == Usage(3, 17, 5, 0)
    assert (record.status, record.finish_reason, record.streamed) == (200, "length", True)
    assert record.chunks[0].kind == "role"
    assert [chunk.kind for chunk in record.chunks[-2:]] == ["other", "usage"]
    kinds = [chunk.kind for chunk in record.content]
    assert kinds == sorted(kinds)  # reasoning first
    assert len("".join(chunk.text for chunk in record.content).split()) == 17
    if chunk == 1:
        assert len(kinds) == 17
    if chunk == 3:  # 1 and then as many as make 5, then the other 12
        assert [len(one.text.split()) for one in record.content] == [1, 3, 1, 3, 3, 3, 3]


@pytest.mark.parametrize("kind", ["openai-completions", "openai-embeddings"])
async def test_other_endpoints(kind: str) -> None:
    prompt = Prompt(text="one two") if "emb" in kind else Prompt(text="one two", max_tokens=3)
    record = await ask_mock(MockSettings(**QUICK), prompt, endpoint={"kind": kind})
    assert record.failure is None
    assert record.usage.prompt_tokens == 2
    assert len(record.content) == (1 if "emb" in kind else 3)
    assert record.streamed == ("emb" not in kind)


async def test_a_reply_without_a_stream_has_one_chunk_at_its_end() -> None:
    record = await ask_mock(MockSettings(**QUICK), Prompt(text="a", max_tokens=5, stream=False))
    assert [chunk.kind for chunk in record.chunks] == ["text"]
    assert record.chunks[0].at_ns == record.end_ns
    assert record.output_tokens == 5


async def test_time_in_the_server_s_queue_is_told() -> None:
    settings = MockSettings(ttft_ms=50, tpot_ms=0, capacity=1)
    async with MockEndpoint(settings) as url:
        at = Endpoint(kind="openai-chat", base_url=url, model="m")
        prompt = Prompt(text="a", max_tokens=2, extra_body={"return_metrics": True})
        records = await asyncio.gather(*[ask(at, prompt) for _ in range(2)])
    waits = sorted(record.queue_ns or 0 for record in records)
    assert waits[0] == 0
    assert waits[1] > MS


def _on_uvloop(run: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run)


def test_many_at_once_on_uvloop() -> None:
    """The loop that runs use: a pool that is reused, everything counted."""

    async def run() -> None:
        endpoint = MockEndpoint(MockSettings(ttft_ms=5, tpot_ms=1, role_chunk="none"))
        async with endpoint as url:
            at = Endpoint(kind="openai-chat", base_url=url, model="m")
            request = build_request(at, Prompt(text="a b", max_tokens=8))
            client = client_of(request, max_connections=10)
            assert await client.open(4) is None
            while endpoint.connections < 4:
                await asyncio.sleep(0.005)
            raws = await asyncio.gather(*[client.send(request) for _ in range(60)])
            assert (client.in_flight, client.waiting) == (0, 0)
            assert endpoint.connections == 10
            await client.close()
        assert all(raw.complete and raw.sent_ns is not None for raw in raws)
        assert sum(raw.new_connection for raw in raws) == 6
        assert endpoint.outcomes == {"completed": 60}
        assert all(raw.body.count(b'"content"') == 8 for raw in raws)

    _on_uvloop(run())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_tls_and_a_long_prompt(loop: str) -> None:
    authority = trustme.CA()
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def run() -> None:
        async with MockEndpoint(MockSettings(**QUICK), tls=server_side) as url:
            assert url.startswith("https://")
            at = Endpoint(kind="openai-chat", base_url=url, model="m")
            for words in (3, 300_000):
                request = build_request(at, Prompt(text="word " * words, max_tokens=4))
                client = LoadClient(request.origin, tls=trusting)
                raw = await client.send(request)
                await client.close()
                assert raw.complete
                assert raw.headers_ns is not None
                assert raw.sent_ns is not None
                assert raw.begun_ns < raw.sent_ns <= raw.end_ns
                assert b'"prompt_tokens":%d' % words in raw.body
                # benchmarks/client_precision.py takes the mock's clock from it.
                assert int(raw.headers[RECEIVED_HEADER]) > raw.sent_ns
            record = await ask(at, Prompt(text="a"))
            assert record.failure is not None
            assert record.failure.kind == "connect"
            assert "the certificate of 127.0.0.1" in record.failure.message

    factory = uvloop.new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_long_prompt_is_sent_when_its_last_byte_is(loop: str) -> None:
    """The server reads nothing for a while, so the socket cannot take it all."""

    async def run() -> None:
        begin = asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await begin.wait()
            await reader.readuntil(b"\r\n\r\n")
            left = size
            while left > 0:
                left -= len(await reader.read(1 << 20))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1024)
        port = server.sockets[0].getsockname()[1]
        at = Endpoint(kind="openai-chat", base_url=f"http://127.0.0.1:{port}", model="m")
        request = build_request(at, Prompt(text="x" * 20_000_000, stream=False))
        size = len(request.data.partition(b"\r\n\r\n")[2])
        client = client_of(request, request_timeout_s=60)
        sending = asyncio.ensure_future(client.send(request))
        await asyncio.sleep(0.3)
        begin.set()
        raw = await sending
        await client.close()
        server.close()
        assert raw.complete
        assert raw.sent_ns is not None
        assert raw.sent_ns - raw.begun_ns > 200 * MS

    factory = uvloop.new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(run())


async def test_waiting_for_a_connection_shows_in_the_record() -> None:
    async with MockEndpoint(MockSettings(ttft_ms=60, tpot_ms=0)) as url:
        at = Endpoint(kind="openai-chat", base_url=url, model="m")
        request = build_request(at, Prompt(text="a", max_tokens=1))
        client = client_of(request, max_connections=1)
        raws = await asyncio.gather(*[client.send(request) for _ in range(3)])
        await client.close()
    waits = [(raw.sent_ns or 0) - raw.begun_ns for raw in raws]
    assert waits == sorted(waits)
    assert waits[2] >= 2 * 0.9 * 60 * MS
    assert [raw.new_connection for raw in raws] == [True, False, False]


async def test_connections_that_rested_too_long_are_not_used_again() -> None:
    endpoint = MockEndpoint(MockSettings(**QUICK))
    async with endpoint as url:
        at = Endpoint(kind="openai-chat", base_url=url, model="m")
        request = build_request(at, Prompt(text="a", max_tokens=1))
        client = client_of(request, keepalive_s=0)
        raws = [await client.send(request) for _ in range(3)]
        assert [raw.new_connection for raw in raws] == [True, True, True]
        await client.close()


async def test_a_server_that_closes_after_each_reply_costs_a_connection_each() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    async with scripted(head) as url:
        at = Endpoint(kind="openai-chat", base_url=url, model="m")
        request = build_request(at, Prompt(text="a", stream=False))
        client = client_of(request, max_connections=2)
        for _ in range(5):
            raw = await client.send(request)
            assert raw.complete
            await asyncio.sleep(0.02)
        await client.close()


async def test_a_close_that_the_loop_has_not_read_is_seen_before_the_next_request() -> None:
    """A reply and the server's close are one packet, and the next request follows at once."""
    body = stream_head() + piece(good_body()) + LAST_PIECE
    with misbehaving(then_closed(body)) as url:
        at = Endpoint(kind="openai-chat", base_url=url + "/v1", model="m")
        request = build_request(at, Prompt(text="a"))
        client = client_of(request, max_connections=2)
        first = await client.send(request)
        raws = [first, *[await client.send(request) for _ in range(20)]]
        await client.close()
    assert [raw.failure for raw in raws] == [None] * 21
    assert all(raw.new_connection for raw in raws)


async def test_the_end_of_a_run_ends_what_is_on_its_way() -> None:
    endpoint = MockEndpoint(MockSettings(ttft_ms=0, tpot_ms=60_000))
    async with endpoint as url:
        at = Endpoint(kind="openai-chat", base_url=url, model="m")
        request = build_request(at, Prompt(text="a", max_tokens=9))
        client = client_of(request, max_connections=2)
        sent = [asyncio.ensure_future(client.send(request)) for _ in range(5)]
        await until(
            lambda: (
                client.waiting == 3
                and endpoint.running == 2
                and all(exchange.body_bytes for exchange in client._working)
            ),
            "two replies that have begun and three requests that wait",
        )
        assert client.cancel_all() == 5
        raws = await asyncio.gather(*sent)
        assert [raw.failure.kind for raw in raws if raw.failure] == ["cancelled"] * 5
        assert sum(raw.sent_ns is None for raw in raws) == 3
        assert all(raw.body for raw in raws if raw.sent_ns is not None)
        # The client goes on.
        again = asyncio.ensure_future(client.send(request))
        while not client.in_flight:
            await asyncio.sleep(0.005)
        again.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await again
        assert again.cancelled()
        assert client.in_flight == 0
        await client.close()


async def test_replies_before_the_reply_and_behind_it() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    event = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    framed = head + b"content-length: %d\r\n\r\n" % len(event) + event
    record = await ask_script(early, framed + framed)
    assert (record.status, record.failure) == (200, None)
    assert [chunk.text for chunk in record.content] == ["a"]
    # Without a length the connection's end is the reply's.
    record = await ask_script(head + b"\r\n", event[:20], event[20:])
    assert record.failure is None
    assert [chunk.kind for chunk in record.chunks if chunk.kind in CONTENT_KINDS] == ["text"]


class Addresses:
    """Connections to addresses that are told how they behave; `tried` in order."""

    def __init__(self, client: LoadClient, **behaviour: OSError | None) -> None:
        self.tried: list[str] = []
        self.given_up: list[str] = []
        self._behaviour = behaviour
        self._really = client._connect_to
        client._connect_to = self._connect_to  # type: ignore[method-assign]
        client._addresses = list(behaviour)

    async def _connect_to(self, address: str) -> ClientConnection:
        self.tried.append(address)
        error = self._behaviour[address]
        if error is not None:
            raise error
        if address.startswith("silent"):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.given_up.append(address)
                raise
        return await self._really("127.0.0.1")


REFUSED, UNREACHABLE = ConnectionRefusedError("refused"), OSError(101, "Network is unreachable")


@pytest.mark.parametrize(
    ("behaviour", "tried"),
    [
        ({"silent": None, "good": None}, ["silent", "good"]),
        ({"silent": None, "silent2": None, "good": None}, ["silent", "silent2", "good"]),
        ({"dead": UNREACHABLE, "silent": None, "good": None}, ["dead", "silent", "good"]),
        ({"dead": REFUSED, "good": None}, ["dead", "good"]),
        ({"good": None}, ["good"]),
    ],
)
async def test_an_address_that_says_nothing_is_not_waited_for(
    behaviour: dict[str, OSError | None], tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load_client, "STAGGER_S", 0)
    async with MockEndpoint(MockSettings(**QUICK)) as url:
        request = build_request(
            Endpoint(kind="openai-chat", base_url=url, model="m"), Prompt(text="x", max_tokens=1)
        )
        client = client_of(request, connect_timeout_s=3600.0)
        addresses = Addresses(client, **behaviour)
        raw = await client.send(request)
        assert raw.failure is None
        assert addresses.tried == tried
        assert client._addresses == ["good"]  # of all that follow
        assert addresses.given_up == [one for one in tried if one.startswith("silent")]
        await client.close()


@pytest.mark.parametrize("behaviour", [(REFUSED, UNREACHABLE), (UNREACHABLE, REFUSED)])
async def test_a_refusal_is_what_is_told_of_a_host_without_a_server(
    behaviour: tuple[OSError, OSError],
) -> None:
    client = LoadClient(("http", "localhost", 1))
    Addresses(client, first=behaviour[0], second=behaviour[1])
    failure = await client.open(1)
    assert failure is not None
    assert "refused the connection" in failure.message
    await client.close()
