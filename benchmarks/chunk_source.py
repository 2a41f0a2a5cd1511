"""A server that only writes chunks: the cheapest source of streams there is in Python.

`python -m benchmarks.chunk_source --chunks 200 --every-ms 5` answers every POST with a chat stream
of so many chunks, the first at once, each stamped with the time at which it was written, as
`headrace bench mock` stamps them. The mock can do more and pays for it: a chunk of it costs more
than the client has to pay, so it cannot show where the client's limit lies. Sources with the same
--port share it, and the kernel spreads connections among them. Prints its URL as JSON; SIGTERM
ends it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable

_MODELS = b'{"object":"list","data":[{"id":"chunks","object":"model"}]}'
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
# As long as the events of the mock are; a stamp has room for any time of the clock.
_OPENING = (
    b'data: {"id":"chunk-1","object":"chat.completion.chunk","created":0,"model":"chunks",'
    b'"choices":[{"index":0,"delta":{"content":" water"},"finish_reason":null}],"mock_sent_ns":'
)
_STAMP_CHARACTERS = 19
_EVENT_BYTES = len(_OPENING) + _STAMP_CHARACTERS + len(b"}\n\n")
# One piece of HTTP's chunked coding for one event: JSON allows spaces before a number.
_EVENT = b"%x\r\n%b%%19d}\n\n\r\n" % (_EVENT_BYTES, _OPENING)
# All of a stream fits, so that a write never waits for a client that is late.
_SEND_BUFFER_BYTES = 2**20
_BACKLOG = 4096
_READ_BYTES = 65536
# epoll counts in milliseconds: chunks are up to one late, and the core is not kept busy.
_SHORTEST_WAIT_S = 0.001


def ending(tokens: int) -> bytes:
    """The last event, with usage, and the ends of the stream and of the body."""
    usage = b'{"prompt_tokens":1,"completion_tokens":%d,"total_tokens":%d}' % (tokens, tokens + 1)
    data = (
        b'data: {"id":"chunk-1","object":"chat.completion.chunk","created":0,"model":"chunks",'
        b'"choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":%b}\n\n'
        b"data: [DONE]\n\n" % usage
    )
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)


def request_bytes(data: bytes) -> int | None:
    """Length of the request that `data` begins with; None while its head is not whole."""
    head_bytes = data.find(b"\r\n\r\n")
    if head_bytes < 0:
        return None
    length = 0
    for line in data[:head_bytes].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    return head_bytes + 4 + length


class Source:
    """All streams have the same pace, so whoever was served first is due first."""

    def __init__(self, port: int, chunks: int, every_ns: int, clock_ns: Callable[[], int]) -> None:
        self._chunks = chunks
        self._every_ns = every_ns
        self._clock_ns = clock_ns
        self._ending = ending(chunks)
        self._clients: dict[int, socket.socket] = {}
        self._unread: dict[int, bytes] = {}
        # (due, file, socket, chunks written): the socket says whether the file is still the same.
        self._due: deque[tuple[int, int, socket.socket, int]] = deque()
        self._new: list[tuple[int, socket.socket]] = []
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._listening.bind(("127.0.0.1", port))
        self._listening.listen(_BACKLOG)
        self._listening.setblocking(False)
        self._poll = select.epoll()
        self._poll.register(self._listening, select.EPOLLIN)
        self.port: int = self._listening.getsockname()[1]

    def run(self) -> None:
        """Until the process is ended."""
        listening = self._listening.fileno()
        while True:
            for file, _ in self._poll.poll(self._wait_s()):
                if file == listening:
                    self._accept()
                else:
                    self._read(file)
            self._write_due()

    def _wait_s(self) -> float | None:
        if not self._due:
            return None
        left_s = (self._due[0][0] - self._clock_ns()) / 1e9
        return max(left_s, _SHORTEST_WAIT_S) if left_s > 0 else 0.0

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._clients[client.fileno()] = client
        self._unread[client.fileno()] = b""
        self._poll.register(client, select.EPOLLIN)

    def _read(self, file: int) -> None:
        client = self._clients[file]
        try:
            data = client.recv(_READ_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            self._drop(file)
            return
        self._unread[file] += data
        length = request_bytes(self._unread[file])
        if length is None or len(self._unread[file]) < length:
            return
        is_post = self._unread[file].startswith(b"POST ")
        self._unread[file] = self._unread[file][length:]
        if is_post:
            self._write(file, _HEAD)
            self._new.append((file, client))
        else:
            kind = b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(_MODELS)
            self._write(file, b"HTTP/1.1 200 OK\r\n" + kind + _MODELS)

    def _drop(self, file: int) -> None:
        self._poll.unregister(file)
        self._clients.pop(file).close()
        del self._unread[file]

    def _write(self, file: int, data: bytes) -> None:
        try:
            os.write(file, data)
        except ConnectionError:
            self._drop(file)

    def _write_due(self) -> None:
        """What is due by now, then the first chunks of new streams: the row stays in order."""
        now_ns, due = self._clock_ns(), self._due
        while due and due[0][0] <= now_ns:
            due_ns, file, client, written = due.popleft()
            self._chunk(due_ns, file, client, written)
        for file, client in self._new:
            self._chunk(now_ns, file, client, 0)
        self._new.clear()

    def _chunk(self, due_ns: int, file: int, client: socket.socket, written: int) -> None:
        if self._clients.get(file) is not client:
            return
        try:
            os.write(file, _EVENT % self._clock_ns())
        except ConnectionError:
            self._drop(file)
            return
        if written + 1 < self._chunks:
            self._due.append((due_ns + self._every_ns, file, client, written + 1))
        else:
            self._write(file, self._ending)


def main() -> int:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--chunks", type=int, default=200, help="of each stream")
    parser.add_argument("--every-ms", type=float, default=5.0, help="between two of a stream")
    options = parser.parse_args()
    # A file for each stream; shells commonly allow 1,024.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    every_ns = round(options.every_ms * 1e6)
    source = Source(options.port, options.chunks, every_ns, time.monotonic_ns)
    url = f"http://127.0.0.1:{source.port}"
    sys.stdout.write(json.dumps({"url": url, "port": source.port}) + "\n")
    sys.stdout.flush()
    # A collection would delay chunks, and nothing here makes cycles.
    gc.disable()
    source.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
