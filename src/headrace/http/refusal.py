"""Replies to what never becomes a call: bytes that are no request, or one too many.

They are written by the connection itself, in the shape every other error has, and close it.
"""

from __future__ import annotations

import http
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from starlette.types import Send

from headrace.http.headers import REQUEST_ID
from headrace.protocol.openai.error import INVALID_REQUEST, SERVER_ERROR, ErrorBody, ErrorDetail


class Refusal(NamedTuple):
    """The reason why a client is not served. headers: of this reply only."""

    status: int
    message: str
    code: str
    headers: Mapping[str, str] = {}

    @property
    def body(self) -> bytes:
        """The error as JSON."""
        kind = INVALID_REQUEST if self.status < 500 else SERVER_ERROR
        detail = ErrorDetail(message=self.message, type=kind, code=self.code)
        return msgspec.json.encode(ErrorBody(detail))

    def all_headers(self, request_id: str) -> dict[str, str]:
        """The headers of the whole reply."""
        return {
            "content-type": "application/json",
            "content-length": str(len(self.body)),
            "connection": "close",
            REQUEST_ID: request_id,
            **self.headers,
        }

    def as_bytes(self, request_id: str) -> bytes:
        """The whole reply, with its head."""
        headers = self.all_headers(request_id)
        head = [f"HTTP/1.1 {self.status} {http.HTTPStatus(self.status).phrase}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*head, "", ""]).encode("ascii") + self.body

    async def send(self, send: Send, request_id: str) -> None:
        """Send the reply in the words of ASGI."""
        headers = [(k.encode(), v.encode()) for k, v in self.all_headers(request_id).items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})


FAILED = Refusal(500, "internal error; the server's log has the details", code="internal_error")
NOT_HTTP = Refusal(400, "this is not a valid HTTP/1.1 request", code="bad_request")
