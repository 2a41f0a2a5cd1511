"""The way between a worker and its parent: questions, answers and news over a socket pair.

A frame is a length of four bytes and msgpack of a number and a message: above 0 it is a question,
below 0 the answer to it, 0 is news. Either end may ask, many questions may be open, and messages
arrive in the order in which they were sent.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable
from typing import Protocol, cast

import msgspec

from headrace.errors import HeadraceError
from headrace.gateway.in_time import InTime
from headrace.gateway.workers.messages import Message

logger = logging.getLogger(__name__)

# Of a configuration with thousands of targets the standing has a few MB.
MOST_FRAME_BYTES = 64 * 2**20
# A parent that answers no more is not fed without end: news is lost beyond that.
MOST_UNSENT_BYTES = 64 * 2**20
# What a question may wait for; the other end answers within a millisecond unless it is stuck.
DEFAULT_TIMEOUT_S = 1.0

_LENGTH = struct.Struct("<I")


class LinkLostError(HeadraceError):
    """The other end has gone, or did not answer in time. What was asked may be done all the
    same."""


class TooLongError(HeadraceError):
    """A message has more bytes than a frame may have; it was not sent, and the link goes on."""


class Handler(Protocol):
    """What one end does with what comes."""

    def on_news(self, message: Message) -> None:
        """Must not wait."""

    def on_question(self, message: Message) -> Message | Awaitable[Message]:
        """The answer. What answers at once does so before the next message is looked at."""

    def on_lost(self) -> None:
        """Nothing more comes."""


class Link(asyncio.Protocol):
    """One end; made by `open`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(tuple[int, Message])
        self._open: dict[int, asyncio.Future[Message]] = {}
        self._asked = 0
        self._answering: set[asyncio.Future[None]] = set()
        self._room = asyncio.Event()
        self._room.set()
        self.lost = False

    @classmethod
    async def open(cls, sock: socket.socket, handler: Handler) -> Link:
        """Take over one socket of a pair."""
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: cls(handler), sock=sock)
        return link

    async def ask(self, message: Message, timeout_s: float = DEFAULT_TIMEOUT_S) -> Message:
        """The answer. Raises LinkLostError, after which the question may be done all the same, and
        TooLongError."""
        if self.lost:
            raise LinkLostError("the other process has ended")
        self._asked += 1
        number = self._asked
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._open[number] = future
        try:
            self._send(number, message)
            async with InTime(timeout_s):
                return await future
        except TimeoutError as error:
            raise LinkLostError(f"the other process did not answer in {timeout_s:g} s") from error
        finally:
            self._open.pop(number, None)

    def tell(self, message: Message) -> bool:
        """News. False where it cannot be sent, and is lost."""
        if self.lost or self.unsent_bytes > MOST_UNSENT_BYTES:
            return False
        try:
            self._send(0, message)
        except (OverflowError, TooLongError) as error:
            logger.error("news of %s cannot be sent: %s", type(message).__name__, error)
            return False
        return True

    @property
    def unsent_bytes(self) -> int:
        """What the other end has not read yet, beyond what the system holds."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def flushed(self) -> None:
        """Returns when little is unsent."""
        await self._room.wait()

    def close(self) -> None:
        """After what was sent before."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.lost = True
        self._room.set()
        for future in self._open.values():
            if not future.done():
                future.set_exception(LinkLostError("the other process has ended"))
        self._handler.on_lost()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._room.clear()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._room.set()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        buffer = self._buffer
        buffer += data
        start, size = 0, len(buffer)
        payloads = []
        while size - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > MOST_FRAME_BYTES:
                logger.error("a message of %d bytes ends the link to the other process", length)
                self._abort()
                return
            end = start + _LENGTH.size + length
            if size < end:
                break
            payloads.append(bytes(memoryview(buffer)[start + _LENGTH.size : end]))
            start = end
        del buffer[:start]
        for payload in payloads:
            try:
                number, message = self._decoder.decode(payload)
            except (msgspec.DecodeError, HeadraceError) as error:
                logger.error("a message that cannot be read ends the link: %s", error)
                self._abort()
                return
            try:
                self._take(number, message)
            except Exception:
                # Who asked waits no longer than its time; a fault of ours must not end the link.
                logger.exception("a message of the other process was not dealt with")

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _take(self, number: int, message: Message) -> None:
        if number == 0:
            self._handler.on_news(message)
        elif number < 0:
            future = self._open.get(-number)
            if future is not None and not future.done():
                future.set_result(message)
        else:
            answer = self._handler.on_question(message)
            if isinstance(answer, Awaitable):
                task = asyncio.ensure_future(self._answer(number, answer))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            else:
                self._send(-number, answer)

    async def _answer(self, number: int, answer: Awaitable[Message]) -> None:
        try:
            self._send(-number, await answer)
        except Exception:
            # Who asked waits no longer than its time; a fault of ours must not end the process.
            logger.exception("a question of the other process was not answered")

    def _send(self, number: int, message: Message) -> None:
        if self.lost or self._transport is None:
            return
        payload = self._encoder.encode((number, message))
        if len(payload) > MOST_FRAME_BYTES:
            # The other end would end the link, and with it all that others ask.
            raise TooLongError(
                f"{type(message).__name__} has {len(payload):,} bytes, and a message to the other "
                f"process {MOST_FRAME_BYTES:,} at most"
            )
        self._transport.write(_LENGTH.pack(len(payload)) + payload)
