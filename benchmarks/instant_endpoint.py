"""A provider that answers at once: what gateways are measured against.

`python -m benchmarks.instant_endpoint` answers every POST of a chat completion with bytes that were
made before: a whole answer, or a stream of --chunks chunks as fast as they are read, many to a
write. It looks at nothing of a request but its length and whether it asks for a stream. `headrace
bench mock` can do more and pays for it, so a gateway's limit could be the mock's. Prints its URL as
JSON; SIGTERM ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import re
import sys
from collections.abc import Callable
from typing import cast

import uvloop

_CHUNKS_PER_WRITE = 32
_STREAM = re.compile(rb'"stream"\s*:\s*true')
_LENGTH = re.compile(rb"\r\ncontent-length:\s*(\d+)", re.IGNORECASE)
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


def whole_reply() -> bytes:
    """A short answer with its usage, as HTTP."""
    body = json.dumps(
        {
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "instant",
            "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None, "message": {
                "role": "assistant", "refusal": None,
                "content": "Water runs down to the wheel, and the wheel turns the stone."}}],
            "usage": {"prompt_tokens": 24, "completion_tokens": 14, "total_tokens": 38},
        }
    ).encode()  # fmt: skip
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    """One event of a stream, in a piece of HTTP's chunked coding of its own."""
    value = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "instant",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }  # fmt: skip
    return _framed(b"data: " + json.dumps(value).encode() + b"\n\n")


def stream_ending(tokens: int) -> bytes:
    """The event with usage, [DONE], and the end of the body."""
    value = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "instant",
        "choices": [], "usage": {"prompt_tokens": 24, "completion_tokens": tokens,
                                 "total_tokens": tokens + 24},
    }  # fmt: skip
    told = b"data: " + json.dumps(value).encode() + b"\n\n"
    return chunk({}, "stop") + _framed(told) + _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Answers:
    """What all connections write. chunks: of content, of each stream."""

    def __init__(self, chunks: int) -> None:
        self.whole = whole_reply()
        self.opening = _STREAM_HEAD + chunk({"role": "assistant", "content": ""})
        piece = chunk({"content": " water"})
        full, rest = divmod(chunks, _CHUNKS_PER_WRITE)
        self.writes = [piece * _CHUNKS_PER_WRITE] * full + [piece * rest] * bool(rest)
        self.ending = stream_ending(chunks)


class Connection(asyncio.Protocol):
    """Requests one after another; a stream stops while its reader is behind."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._unread = bytearray()
        self._left = 0
        self._may_write = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A gateway has come."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """A request, or some of one."""
        unread = self._unread
        unread += data
        head_bytes = unread.find(b"\r\n\r\n")
        found = _LENGTH.search(unread, 0, head_bytes + 2) if head_bytes >= 0 else None
        size = head_bytes + 4 + (int(found[1]) if found else 0)
        if head_bytes < 0 or len(unread) < size:
            return
        streams = _STREAM.search(unread, head_bytes, size) is not None
        self._unread = unread[size:]
        if streams:
            self._transport.write(self._answers.opening)
            self._left = len(self._answers.writes)
            self._write_on()
        else:
            self._transport.write(self._answers.whole)

    def pause_writing(self) -> None:
        """The reader is behind."""
        self._may_write = False

    def resume_writing(self) -> None:
        """It has caught up."""
        self._may_write = True
        self._write_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._left = 0

    def _write_on(self) -> None:
        """One write, then whoever else is there: streams go on side by side."""
        if not self._left or not self._may_write:
            return
        writes = self._answers.writes
        self._transport.write(writes[len(writes) - self._left])
        self._left -= 1
        if not self._left:
            self._transport.write(self._answers.ending)
        elif self._may_write:
            asyncio.get_running_loop().call_soon(self._write_on)


async def serve(make: Callable[[], Connection], port: int) -> None:
    """Until the process is ended."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(make, "127.0.0.1", port, backlog=1024)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    sys.stdout.write(json.dumps({"url": url}) + "\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> int:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--chunks", type=int, default=1000, help="of content, of each stream")
    options = parser.parse_args()
    answers = Answers(options.chunks)
    # A collection would delay answers.
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(lambda: Connection(answers), options.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
