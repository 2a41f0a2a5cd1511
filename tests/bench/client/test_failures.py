"""Every class of failure, provoked over loopback: what is said, and what is kept."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any

import pytest

from headrace.bench.client.endpoints import Endpoint, build_request
from headrace.bench.client.exchange import KEPT_OF_CUT_BYTES
from headrace.bench.client.limits import ClientLimits
from headrace.bench.client.load_client import LoadClient
from headrace.bench.client.prompt import Prompt
from headrace.bench.mock.endpoint import MockEndpoint
from headrace.bench.mock.settings import MockSettings
from headrace.errors import ConfigError
from tests.bench.client.wire import (
    QUICK,
    ask,
    ask_mock,
    ask_script,
    client_of,
    record_of,
    scripted,
)

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'


@pytest.mark.parametrize(
    ("fault", "kind", "told", "some_content"),
    [
        ("429", "http", "HTTP 429, too many requests for this endpoint, retry after 2 s", False),
        ("500", "http", "HTTP 500: the mock was configured to fail", False),
        ("reset-before", "truncated", "the connection was reset before a reply came", False),
        ("reset-inside", "truncated", "the connection was reset after", True),
        ("truncated", "truncated", "the connection ended after", True),
        ("html", "protocol", "HTML in place of a stream of events", False),
        ("error-event", "stream", "the server reported: the mock was configured to fail", True),
    ],
)
async def test_the_mock_s_faults(fault: str, kind: str, told: str, some_content: bool) -> None:
    settings = MockSettings(errors=((fault, 1.0),), retry_after_s=2, **QUICK)
    record = await ask_mock(settings, request_timeout_s=30)
    assert record.failure is not None
    assert record.failure.kind == kind
    assert record.failure.message.startswith(told)
    assert bool(record.content) == some_content
    assert len(record.content) < 6
    assert record.sent_ns is not None
    assert record.end_ns is not None
    whole = await ask_mock(settings, Prompt(text="a", max_tokens=6, stream=False))
    assert whole.failure is not None
    assert not whole.content


async def test_an_endless_stream_is_bounded_by_time_and_by_bytes() -> None:
    settings = MockSettings(errors=(("endless", 1.0),), **QUICK)
    record = await ask_mock(settings, request_timeout_s=0.5)
    assert record.failure is not None
    assert record.failure.kind == "timeout"
    assert record.failure.message.startswith("the reply was not complete after 0.5 s; ")
    assert record.failure.message.endswith(" bytes of it came")
    record = await ask_mock(settings, max_reply_bytes=4000)
    assert record.failure is not None
    assert record.failure.kind == "protocol"
    assert "more than 4,000 bytes of memory and was cut" in record.failure.message
    assert len(record.content) > 6


async def test_a_storm_of_all_of_them_is_counted_exactly() -> None:
    """Through a small pool whose connections break all the time, and nothing is lost."""
    classes = {
        "completed": None,
        "429": "http",
        "500": "http",
        "reset-before": "truncated",
        "reset-inside": "truncated",
        "truncated": "truncated",
        "html": "protocol",
        "error-event": "stream",
    }
    errors = tuple((kind, 0.1) for kind in classes if kind != "completed")
    endpoint = MockEndpoint(MockSettings(errors=errors, ttft_ms=1, tpot_ms=0.2, seed=3))
    async with endpoint as url:
        at = Endpoint(kind="openai-chat", base_url=url, model="m")
        request = build_request(at, Prompt(text="a b", max_tokens=5))
        client = client_of(request, max_connections=6, request_timeout_s=60)
        raws = await asyncio.gather(*[client.send(request) for _ in range(150)])
        assert (client.in_flight, client.waiting) == (0, 0)
        await client.close()
    records = [record_of(raw) for raw in raws]
    found = Counter(record.failure.kind if record.failure else None for record in records)
    wanted: Counter[str | None] = Counter()
    for outcome, count in endpoint.outcomes.items():
        wanted[classes[outcome]] += count
    assert found == wanted
    assert len(found) == 5


async def test_a_wrong_key() -> None:
    settings = MockSettings(api_key="right-key-123456")
    record = await ask_mock(settings, endpoint={"api_key": "wrong-key-123456"})
    assert record.failure is not None
    assert (record.status, record.failure.kind) == (401, "http")
    assert record.failure.message.startswith("HTTP 401, the key is missing or wrong")
    assert "123456" not in str(record)
    record = await ask_mock(settings, endpoint={"api_key": "right-key-123456"})
    assert record.failure is None


async def test_no_connection() -> None:
    with socket.socket() as taken:  # bound and not listening: nobody else can get the port
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        at = Endpoint(kind="openai-chat", base_url=f"http://127.0.0.1:{port}", model="m")
        record = await ask(at, Prompt(text="a"))
        client = LoadClient(("http", "127.0.0.1", port))
        failure = await client.open(3)
        await client.close()
    assert record.failure is not None
    assert record.failure == failure
    assert record.failure.kind == "connect"
    assert record.failure.message.startswith(f"127.0.0.1:{port} refused the connection")
    assert (record.sent_ns, record.status) == (None, None)
    at = Endpoint(kind="openai-chat", base_url="http://no-such-host.invalid", model="m")
    record = await ask(at, Prompt(text="a"))
    assert record.failure is not None
    assert record.failure.kind == "connect"
    assert "no-such-host.invalid" in record.failure.message


async def test_a_connection_that_nobody_takes() -> None:
    """The queue of a listening socket is full, so the kernel answers no more."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        at = Endpoint(kind="openai-chat", base_url=f"http://127.0.0.1:{port}", model="m")
        record = await ask(at, Prompt(text="a"), connect_timeout_s=0.2)
    assert record.failure is not None
    assert record.failure.kind == "connect"
    assert "did not accept the connection within 0.2 s" in record.failure.message


async def test_waiting_for_a_connection_ends_too() -> None:
    async with MockEndpoint(MockSettings(ttft_ms=60_000)) as url:
        at = Endpoint(kind="openai-chat", base_url=url, model="m")
        request = build_request(at, Prompt(text="a"))
        client = client_of(request, max_connections=1, request_timeout_s=0.3)
        raws = await asyncio.gather(client.send(request), client.send(request))
        await client.close()
    assert [raw.failure.kind for raw in raws if raw.failure] == ["timeout", "timeout"]


@pytest.mark.parametrize(
    ("pieces", "options", "kind", "told"),
    [
        ([b"\x15\x03\x01 an alert"], {}, "protocol", "the server speaks TLS: write https://"),
        ([b"SSH-2.0-x\r\n"], {}, "protocol", "is this the port of the API?"),
        (
            [b"HTTP/1.1 200 OK\r\nx-big: " + b"y" * 70_000],
            {"hold": True},
            "protocol",
            "the head of the reply is longer than 65,536 bytes",
        ),
        (
            [HEAD + b"content-length: 17000000\r\n\r\n", b"data: x" * 2_400_000, b"x" * 200_000],
            {},
            "protocol",
            "an event of the stream is longer than 16,777,216 bytes",
        ),
        ([b"HTTP/1.1 200 OK\r\n"], {}, "truncated", "the connection ended before a reply came"),
        (
            [CHUNKED + b"%x\r\n" % len(EVENT) + EVENT + b"\r\n0\r\n\r\n"],
            {},
            "truncated",
            "the stream ended after 1 events, unfinished",
        ),
        ([CHUNKED + b"%x\r\n" % len(EVENT) + EVENT], {}, "truncated", "the connection ended after"),
        (
            [CHUNKED + b"%x\r\n" % len(EVENT) + EVENT],
            {"hold": True, "limits": {"request_timeout_s": 0.3}},
            "timeout",
            "the reply was not complete after 0.3 s",
        ),
        (
            [HEAD + b"content-length: 9\r\n\r\ndata: {x\n"],
            {},
            "protocol",
            "there is no event in 9 bytes of text/event-stream",
        ),
        (
            [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{..}"],
            {"stream": False},
            "protocol",
            "the reply is not JSON",
        ),
        (
            [
                b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 40\r\n\r\n"
                b"no: sk-secret-1234567890 is not a key\r\n\r\n"
            ],
            {},
            "http",
            "HTTP 401, the key is missing or wrong: no: ******** is not a key",
        ),
    ],
)
async def test_other_ways_to_fail(
    pieces: list[bytes], options: dict[str, Any], kind: str, told: str
) -> None:
    record = await ask_script(*pieces, **options)
    assert record.failure is not None
    assert record.failure.kind == kind
    assert told in record.failure.message
    assert "sk-secret" not in str(record)


async def test_a_connection_that_closes_while_it_rests_is_told_apart() -> None:
    body = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    closing = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(body)
        await reader.read(65536)
        await reader.read(65536)  # the second request
        writer.close()
        closing.set()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    request = build_request(
        Endpoint(kind="openai-chat", base_url=url, model="m"), Prompt(text="a", stream=False)
    )
    client = client_of(request, request_timeout_s=20)
    first, second = [await client.send(request) for _ in range(2)]
    await client.close()
    server.close()
    assert first.failure is None
    assert second.failure is not None
    assert "it had been used before, and servers close idle connections:" in second.failure.message


async def test_all_replies_under_way_share_one_room() -> None:
    """Endless streams fill it, lose all but their beginning, and leave it to those that follow."""
    settings = MockSettings(
        errors=(("endless", 0.5),), ttft_ms=0, tpot_ms=0, tokens_per_chunk=10_000, seed=1
    )
    endpoint = MockEndpoint(settings)
    async with endpoint as url:
        at = Endpoint(kind="openai-chat", base_url=url, model="m")
        request = build_request(at, Prompt(text="a", max_tokens=200_000))
        client = client_of(request, max_held_bytes=3 * 2**20, request_timeout_s=60)
        raws = await asyncio.gather(*[client.send(request) for _ in range(4)])
        small = build_request(at, Prompt(text="a", max_tokens=4))
        later = [await client.send(small) for _ in range(4)]
        await client.close()
    cut = [raw for raw in raws if raw.failure is not None]
    assert cut
    for raw in cut:
        assert raw.failure is not None
        assert "3,145,728 bytes of memory" in raw.failure.message
        assert len(raw.body) <= KEPT_OF_CUT_BYTES
        assert record_of(raw).content
    assert any(raw.complete for raw in later)


async def test_what_comes_in_one_read_is_one_piece() -> None:
    pieces = b"".join(b"%x\r\n" % len(EVENT) + EVENT + b"\r\n" for _ in range(5))
    async with scripted(CHUNKED + pieces + b"0\r\n\r\n") as url:
        request = build_request(
            Endpoint(kind="openai-chat", base_url=url, model="m"), Prompt(text="a")
        )
        client = client_of(request)
        raw = await client.send(request)
        await client.close()
    assert raw.complete
    assert raw.body == EVENT * 5
    assert len(raw.pieces) == 1


def test_limits_name_themselves() -> None:
    with pytest.raises(ConfigError, match="max_connections: 0 is not in 1 to 1e"):
        ClientLimits(max_connections=0)
    with pytest.raises(ConfigError, match="request_timeout_s: nan is not in"):
        ClientLimits(request_timeout_s=float("nan"))
