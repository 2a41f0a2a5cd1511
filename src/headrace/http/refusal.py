"""Replies to what never becomes a call: bytes that are no request, or one too many.

They are written by the connection itself, in the shape every other error has, and close it.
"""

from __future__ import annotations

import http
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from headrace.http.headers import REQUEST_ID
from headrace.protocol.openai.error import INVALID_REQUEST, SERVER_ERROR, ErrorBody, ErrorDetail


class Refusal(NamedTuple):
    """The reason why a client is not served. headers: of this reply only."""

    status: int
    message: str
    code: str
    headers: Mapping[str, str] = {}

    def as_bytes(self, request_id: str) -> bytes:
        """The whole reply, with its head."""
        kind = INVALID_REQUEST if self.status < 500 else SERVER_ERROR
        detail = ErrorDetail(message=self.message, type=kind, code=self.code)
        body = msgspec.json.encode(ErrorBody(detail))
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            REQUEST_ID: request_id,
            **self.headers,
        }
        head = [f"HTTP/1.1 {self.status} {http.HTTPStatus(self.status).phrase}"]
        head += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*head, "", ""]).encode("ascii") + body


NOT_HTTP = Refusal(400, "this is not a valid HTTP/1.1 request", code="bad_request")
