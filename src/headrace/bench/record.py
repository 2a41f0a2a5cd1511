"""What a load run writes down of each request: every chunk's time, and nothing computed.

Metrics are derived from these records afterwards (`definitions`), so that one run can be reported
under the definitions of any tool. All times are integer nanoseconds of one monotonic clock, counted
from the start of the run. Knows neither HTTP nor statistics.
"""

from __future__ import annotations

from typing import Literal

import msgspec

# What a chunk of a stream carried. "role" has choices but no content (it opens a chat stream),
# "usage" only counts; "other" is anything else that a server sends, an empty delta for one.
ChunkKind = Literal["role", "text", "reasoning", "tool", "usage", "other"]
CONTENT_KINDS: frozenset[ChunkKind] = frozenset({"text", "reasoning", "tool"})

ErrorClass = Literal[
    "connect",  # no connection: refused, unreachable, unknown host, TLS
    "http",  # a status that is not 2xx; `status` says which
    "protocol",  # not what the endpoint's format allows: HTML, broken JSON, wrong content type
    "truncated",  # the connection ended before the stream did
    "stream",  # the server reported an error inside the stream
    "timeout",  # the request's own limit of time passed
    "cancelled",  # the run ended first
]


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """One event of a stream.

    `stamped_ns` is the server's own send time where it gives one; `tokens` how many the chunk
    carried, where the server told it chunk by chunk.
    """

    at_ns: int
    kind: ChunkKind
    text: str = ""
    stamped_ns: int | None = None
    tokens: int | None = None


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts as the server reported them; None where it did not."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


class Failure(msgspec.Struct, frozen=True):
    """The reason why a request failed. `message` is one line, without secrets."""

    kind: ErrorClass
    message: str


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a run.

    `intended_ns` is when the schedule wanted it sent, `begun_ns` when the client took it up (what
    lies between that and `sent_ns` is the wait for a connection and, with `new_connection`, making
    one), `sent_ns` just before its last byte was handed to the socket (None: never), `headers_ns`
    when the status line was there, `end_ns` when the response was complete or given up. A request
    without a stream (`streamed` is False) has one content chunk, at its end, and no first token
    that anybody saw. A failed request keeps the chunks that it got. Token counts named `client_`
    are counted here, after the run; None means not counted.
    """

    index: int
    measured: bool
    intended_ns: int
    streamed: bool = True
    begun_ns: int | None = None
    sent_ns: int | None = None
    headers_ns: int | None = None
    end_ns: int | None = None
    chunks: tuple[Chunk, ...] = ()
    status: int | None = None
    failure: Failure | None = None
    finish_reason: str | None = None
    usage: Usage = Usage()
    # Time that the server says the request waited before it was worked on.
    queue_ns: int | None = None
    session: int | None = None
    turn: int = 0
    prompt_tokens_asked: int | None = None
    output_tokens_asked: int | None = None
    client_prompt_tokens: int | None = None
    client_output_tokens: int | None = None
    new_connection: bool = False

    @property
    def content(self) -> tuple[Chunk, ...]:
        """The chunks that carried something of the answer, in order of arrival."""
        return tuple(chunk for chunk in self.chunks if chunk.kind in CONTENT_KINDS and chunk.text)

    @property
    def output_tokens(self) -> int | None:
        """Output tokens: the server's count where it gave one, else the client's."""
        told = self.usage.completion_tokens
        return told if told is not None else self.client_output_tokens

    @property
    def prompt_tokens(self) -> int | None:
        """Prompt tokens: the server's count where it gave one, else the client's."""
        told = self.usage.prompt_tokens
        return told if told is not None else self.client_prompt_tokens


class Collections(msgspec.Struct, frozen=True):
    """Garbage collections of a client's own Python while it ran; nothing else happens in them."""

    count: int
    total_ns: int
    longest_ns: int


class ClientHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of the load generator itself, so that its limits are not taken for the server's."""

    schedule_lag_ns: tuple[int, ...]
    """Samples in nanoseconds of the actual minus the intended send time."""
    loop_lag_ns: tuple[int, ...]
    """Samples in nanoseconds of how late a timer of the event loop fired."""
    cpu_share: tuple[float, ...]
    """CPU time divided by wall time of each process."""
    collections: Collections | None = None
    """Garbage collections of all processes; None: not watched."""


RunMetadata = dict[str, str | int | float | bool | None]
"""What a reader needs to repeat a run: a flat table without secrets."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run: what was asked, with what, and all that happened.

    `about` holds what a reader needs to repeat the run (version, command, endpoint, data set's
    fingerprint, seed, machine); `server_metrics` are texts of the server's /metrics with the time
    at which each was read.
    """

    about: RunMetadata
    requests: tuple[RequestRecord, ...]
    health: ClientHealth
    server_metrics: tuple[tuple[int, str], ...] = ()

    @property
    def api(self) -> str | None:
        """Which API was spoken (`EndpointKind`); None where nobody wrote it down."""
        kind = self.about.get("endpoint_kind")
        return kind if isinstance(kind, str) else None
