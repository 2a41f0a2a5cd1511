"""What chat and completion replies have in common: head, usage, and how JSON is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from starlette.responses import Response

from headrace.protocol.openai.usage import Usage, usage_of
from headrace.server.api_error import ApiError
from headrace.server.generation import Piece

# One encoder for all: it holds no state between calls. It writes UTF-8, without ASCII escapes.
_ENCODER = msgspec.json.Encoder()


def encode(body: msgspec.Struct) -> bytes:
    """A reply as JSON."""
    return _ENCODER.encode(body)


def json_reply(
    body: msgspec.Struct, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A whole JSON reply."""
    return Response(encode(body), status, headers, media_type="application/json")


def error_reply(error: ApiError, headers: Mapping[str, str] | None = None) -> Response:
    """An error reply in OpenAI's shape."""
    return json_reply(error.body, error.status, headers)


@dataclass(frozen=True)
class Head:
    """What each chunk of a reply repeats. created_s: Unix time in whole seconds."""

    id: str
    created_s: int
    model: str
    fingerprint: str


@dataclass
class Tally:
    """Counts tokens over all choices of a reply; the prompt is counted once per prompt."""

    prompt_tokens: int
    completion_tokens: int = 0
    _cached: dict[int, int] = field(default_factory=dict)

    def add(self, index: int, piece: Piece) -> None:
        """Count a piece of choice `index`."""
        self.completion_tokens += len(piece.token_ids)
        self._cached[index] = max(self._cached.get(index, 0), piece.cached_tokens)

    def usage(self) -> Usage:
        """The usage object."""
        return usage_of(self.prompt_tokens, self.completion_tokens, sum(self._cached.values()))
