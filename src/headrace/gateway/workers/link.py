"""The link between a worker and its parent: questions, answers and news over a socket pair.

A frame is a length of four bytes and msgpack of a number and a message: a positive number marks a
question, its negative the answer, 0 news. Either end may ask, many questions may be open, and
messages arrive in the order in which they were sent.
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

# With thousands of targets the state has a few MB.
MOST_FRAME_BYTES = 64 * 2**20
# The limit for a parent that does not read: news beyond it is lost.
MOST_UNSENT_BYTES = 64 * 2**20
# How long a question waits; the other end answers within a millisecond unless it hangs.
DEFAULT_TIMEOUT_S = 1.0

_LENGTH = struct.Struct("<I")


class LinkLostError(HeadraceError):
    """The other end has gone, or did not answer in time. The question may still take effect."""


class TooLongError(HeadraceError):
    """A message is larger than a frame; it was not sent, and the link goes on."""


class Handler(Protocol):
    """A handler of the messages that one end receives."""

    def on_news(self, message: Message) -> None:
        """Handle news; must not wait."""

    def on_question(self, message: Message) -> Message | Awaitable[Message]:
        """Answer a question; an immediate answer comes before the next message is handled."""

    def on_lost(self) -> None:
        """The link has ended."""


class Link(asyncio.Protocol):
    """One end of a link; made by `open`."""

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
        """Send a question and return the answer. Raises TooLongError, and LinkLostError, after
        which the question may still take effect."""
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
        """Send news; return False if it cannot be sent and is lost."""
        if self.lost or self.unsent_bytes > MOST_UNSENT_BYTES:
            return False
        try:
            self._send(0, message)
        except (OverflowError, TooLongError) as error:
            logger.error("the message %s cannot be sent: %s", type(message).__name__, error)
            return False
        return True

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the other end has not read, beyond the system's own buffer."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def flushed(self) -> None:
        """Wait until little is unsent."""
        await self._room.wait()

    def close(self) -> None:
        """Close the link after what was sent."""
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
                logger.error("a message of %d bytes is too long and ends the link", length)
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
                logger.error("a message is not readable and ends the link: %s", error)
                self._abort()
                return
            try:
                self._take(number, message)
            except Exception:
                # The sender's wait is limited; a fault of this process must not end the link.
                logger.exception("a message of the other process could not be handled")

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
            # The sender's wait is limited; a fault of this process must not end it.
            logger.exception("a question of the other process could not be answered")

    def _send(self, number: int, message: Message) -> None:
        if self.lost or self._transport is None:
            return
        payload = self._encoder.encode((number, message))
        if len(payload) > MOST_FRAME_BYTES:
            # The other end would end the link, with all open questions.
            raise TooLongError(
                f"{type(message).__name__} has {len(payload):,} bytes; a message to the other "
                f"process may have {MOST_FRAME_BYTES:,}"
            )
        self._transport.write(_LENGTH.pack(len(payload)) + payload)
