"""A stream beside its events: headers, what keeps it alive, and its end after a failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from headrace.protocol import sse
from headrace.server.api_error import ApiError


def _keep_alive() -> bytes:
    return sse.KEEP_ALIVE


def _error_event(error: ApiError) -> bytes:
    return sse.data_event(msgspec.json.encode(error.body))


@dataclass(frozen=True)
class StreamForm:
    """The form of one stream; by default OpenAI's."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """In place of those of server-sent events."""
    keep_alive: Callable[[], bytes] = _keep_alive
    """Bytes between two events; b"" for nothing."""
    error: Callable[[ApiError], bytes] = _error_event
    """The last event of a stream that failed."""


OPENAI_FORM = StreamForm()
