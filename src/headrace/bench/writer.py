"""Writing to a socket at the moment of the call.

uvloop gathers what is written and hands it to the kernel when the loop comes round, so the time
noted beside a write would be too early by all that runs in between. Plain sockets are therefore
written to directly while nothing waits before; TLS and a full socket take the transport's way.
"""

from __future__ import annotations

import asyncio
import os


class Writer:
    """The writing side of a connection. A lost connection is noticed when reading."""

    __slots__ = ("_file", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        sock = transport.get_extra_info("socket")
        encrypted = transport.get_extra_info("sslcontext") is not None
        self._transport = transport
        self._file: int = -1 if encrypted or sock is None else sock.fileno()

    def write(self, data: bytes) -> bool:
        """Send `data`; whether the kernel has all of it when this returns."""
        transport = self._transport
        if transport.is_closing():
            return False
        # With bytes waiting in the transport ours would overtake them.
        if self._file >= 0 and transport.get_write_buffer_size() == 0:
            try:
                sent = os.write(self._file, data)
            except BlockingIOError:
                sent = 0
            except OSError:  # the other side is gone, which the transport is about to hear
                return False
            if sent == len(data):
                return True
            data = data[sent:]
        transport.write(data)
        return transport.get_write_buffer_size() == 0
