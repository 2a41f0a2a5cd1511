"""The way back to a client over ASGI."""

from __future__ import annotations

from starlette.types import Send

from headrace.gateway.serving.incoming import ClientGoneError


class AsgiSink:
    """gone: set by who hears that the client has gone. Empty pieces are not sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.gone = False
        self.started = False
        self.status: int | None = None

    async def start(self, status: int, headers: list[tuple[str, str]]) -> None:
        """Head of the reply."""
        if self.gone:
            raise ClientGoneError
        self.started = True
        self.status = status
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
            }
        )

    async def write(self, piece: bytes) -> None:
        """A piece of the body; waits while the client does not take it."""
        if self.gone:
            raise ClientGoneError
        if piece:
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def last(self, piece: bytes) -> None:
        """The rest of the body."""
        if self.gone:
            raise ClientGoneError
        await self._send({"type": "http.response.body", "body": piece, "more_body": False})

    async def end(self) -> None:
        """The body is whole."""
        if self.gone:
            raise ClientGoneError
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
