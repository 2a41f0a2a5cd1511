"""Requests on kept connections, as cheap as Python makes them: for rates and times at saturation.

`python -m benchmarks.keep_alive_loader URL --connections 32 --seconds 10` sends the same chat
completion again and again, the next one when the last was answered, and prints JSON: answers a
second, their times, those with another status than 200, and its own CPU time for each. With
--stream it counts chunks. `headrace bench load` parses and keeps every reply, so at some thousands
a second it would be the limit itself.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import re
import sys
import time
from typing import Any, cast
from urllib.parse import urlsplit

import uvloop

_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_LAST_CHUNK = b"0\r\n\r\n"
_EVENT = b"data: {"
_MESSAGES = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": "What does the channel above the mill do, and what for?"},
]


def request_bytes(url: str, model: str, key: str, *, stream: bool) -> bytes:
    """The request that is sent, head and body."""
    where = urlsplit(url)
    fields: dict[str, Any] = {"model": model, "messages": _MESSAGES, "max_tokens": 64}
    if stream:
        fields["stream"] = True
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {where.netloc}\r\n"
        f"authorization: Bearer {key}\r\ncontent-type: application/json\r\n"
        f"accept: */*\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Count:
    """What all connections saw. left: requests that may still be sent, None for no limit."""

    def __init__(self, left: int | None, end_s: float) -> None:
        self.left = left
        self.end_s = end_s
        self.times_s: list[float] = []
        self.chunks = 0
        self.failed = 0
        self.failure = ""

    def may_send(self) -> bool:
        """Whether another request may go; takes it."""
        if time.perf_counter() >= self.end_s or self.left == 0:
            return False
        if self.left is not None:
            self.left -= 1
        return True


class Connection(asyncio.Protocol):
    """One request after another until there are no more; `done` is set then."""

    def __init__(self, request: bytes, count: Count) -> None:
        self._request = request
        self._count = count
        self._sent_s = 0.0
        self._data = b""
        self._size: int | None = None
        self._seen = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        """Some of a reply."""
        if self._size is None:
            self._data += data
            at = self._data.find(b"\r\n\r\n")
            if at < 0:
                return
            found = _LENGTH.search(self._data, 0, at + 2)
            self._size = int(found[1]) if found else -1
            self._seen = len(self._data) - at - 4
            self._note_status()
            data = self._data
        else:
            self._seen += len(data)
        self._count.chunks += data.count(_EVENT)
        if self._size < 0:
            self._data = (self._data[-8:] + data)[-8:]
            whole = self._data.endswith(_LAST_CHUNK)
        else:
            whole = self._seen >= self._size
        if whole:
            self._count.times_s.append(time.perf_counter() - self._sent_s)
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ended by us, or too early."""
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"a connection was lost: {exc}"))

    def _note_status(self) -> None:
        if not self._data.startswith(b"HTTP/1.1 200"):
            self._count.failed += 1
            self._count.failure = self._count.failure or self._data[:400].decode("latin-1")

    def _send(self) -> None:
        if not self._count.may_send():
            self.done.set_result(None)
            self._transport.close()
            return
        self._data, self._size = b"", None
        self._sent_s = time.perf_counter()
        self._transport.write(self._request)


async def load(url: str, request: bytes, connections: int, count: Count) -> None:
    """Until `count` is reached."""
    loop, where = asyncio.get_running_loop(), urlsplit(url)
    assert where.hostname is not None
    assert where.port is not None
    host, port = where.hostname, where.port
    made = await asyncio.gather(
        *(
            loop.create_connection(lambda: Connection(request, count), host, port)
            for _ in range(connections)
        )
    )
    await asyncio.gather(*(each.done for _, each in made))


def quantile(ordered: list[float], share: float) -> float:
    """The sample at or above the rank."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> int:
    """Load and print."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--requests", type=int, help="at most; default: as many as go")
    parser.add_argument("--model", default="chat")
    parser.add_argument("--key", default="none")
    parser.add_argument("--stream", action="store_true")
    options = parser.parse_args()
    request = request_bytes(options.url, options.model, options.key, stream=options.stream)
    gc.disable()
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    count = Count(options.requests, begun_s + options.seconds)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(load(options.url, request, options.connections, count))
    lasted_s = time.perf_counter() - begun_s
    ordered = sorted(count.times_s)
    found = {
        "requests": len(ordered),
        "failed": count.failed,
        "failure": count.failure,
        "seconds": lasted_s,
        "requests_per_s": len(ordered) / lasted_s,
        "chunks_per_s": count.chunks / lasted_s,
        "p50_ms": 1e3 * quantile(ordered, 0.5),
        "p99_ms": 1e3 * quantile(ordered, 0.99),
        "cpu_share": (time.process_time() - cpu_s) / lasted_s,
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
