"""The error object every OpenAI client reads: {"error": {message, type, param, code}}.

It is the body of every reply that is not a success, and the last event of a stream that failed
after its headers were sent.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
RATE_LIMIT = "rate_limit_error"


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The details of an error."""

    message: str
    type: str = INVALID_REQUEST
    param: Annotated[str | None, Meta(description="Path of the field at fault, if any.")] = None
    code: Annotated[str | None, Meta(description="A word for programs, if any.")] = None
    n_prompt_tokens: Annotated[
        int | UnsetType,
        Meta(
            description="With `context_length_exceeded`: tokens of the prompt; absent where it is "
            "so long that they were not counted."
        ),
    ] = UNSET
    n_ctx: Annotated[
        int | UnsetType,
        Meta(description="With `context_length_exceeded`: tokens that the context has."),
    ] = UNSET


class ErrorBody(msgspec.Struct, frozen=True):
    """The JSON object that goes over the wire."""

    error: ErrorDetail
