"""What a reply is written to, in place of its connection's transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# Of a body that goes out with the head; copying more takes longer than another call.
_COPIED_BYTES = 1 << 16


class ReplyTransport:
    """The transport of one connection's replies; `on_close` closes the connection in its own way.

    The head is sent together with what is written right after it: separately, each would be a
    system call and a packet, and would wake the client. If nothing follows, it does not wait.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        on_close: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._on_close = on_close
        self._begun = False
        self._head = b""
        self._write = transport.write
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """The head first, whole."""
        if not self._begun:
            self._begun = True
            self._head = data
            self._soon = self._loop.call_soon(self.send_head)
            return
        if self._head:
            self._soon.cancel()
            if len(data) <= _COPIED_BYTES:
                data, self._head = self._head + data, b""
            self.send_head()
        self._write(data)

    def send_head(self) -> None:
        """Now, unless it is out."""
        head, self._head = self._head, b""
        if head and not self.is_closing():
            self._write(head)

    def close(self) -> None:
        """The reply was the connection's last."""
        self.send_head()
        self._on_close()
