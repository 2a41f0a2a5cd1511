"""Replies of the admin port: JSON, errors, and the headers that all of them have."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from headrace.gateway.admin.errors import AdminError
from headrace.protocol.openai.error import (
    INVALID_REQUEST,
    SERVER_ERROR,
    ErrorBody,
    ErrorDetail,
)

# Everything from here and nothing from elsewhere, no script or style within the page, and no page
# of another site around it. What it shows is of this moment and of whoever has the key.
SECURITY: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def json_reply(body: object, status: int = 200) -> Response:
    """A reply with Structs, or with what they are made of."""
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def error_reply(error: AdminError) -> Response:
    """A reply in the form of all errors of this package."""
    kind = INVALID_REQUEST if error.status < 500 else SERVER_ERROR
    detail = ErrorDetail(message=str(error), type=kind, code=error.code)
    reply = json_reply(ErrorBody(detail), error.status)
    if error.retry_after_s is not None:
        reply.headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    if error.status == 401:
        reply.headers["www-authenticate"] = 'Bearer realm="headrace admin"'
    return reply
