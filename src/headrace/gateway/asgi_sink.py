"""The sink of replies over ASGI."""

from __future__ import annotations

from starlette.types import Send

from headrace.gateway.serving.incoming import ClientGoneError


class AsgiSink:
    """A Sink that sends over ASGI. `gone` is set when the client has left. Empty pieces are not
    sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.gone = False
        self.started = False
        self.status: int | None = None

    async def start(self, status: int, headers: list[tuple[str, str]]) -> None:
        """Send the head of the reply."""
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
        """Send a piece of the body; waits while the client does not read."""
        if self.gone:
            raise ClientGoneError
        if piece:
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def last(self, piece: bytes) -> None:
        """Send the rest of the body."""
        if self.gone:
            raise ClientGoneError
        await self._send({"type": "http.response.body", "body": piece, "more_body": False})

    async def end(self) -> None:
        """End the body."""
        if self.gone:
            raise ClientGoneError
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
