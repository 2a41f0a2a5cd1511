"""An answer that takes more than one request: which ones, one after another.

    while (ask := steps.next_request()) is not None:
        wait ask.after_s; send ask to ask.url, or to the provider's base URL and ask.path
        if ask.streams and the status is 200:
            events += steps.feed(piece) for each piece of the body, then steps.end_of_body()
        else:
            events += steps.take(status, headers, body)

Pure, as all of a dialect is: no clock and no sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Protocol

from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.event import Event


class ProviderRequest(NamedTuple):
    """One request of a sequence."""

    method: Literal["GET", "POST"]
    path: str
    headers: Mapping[str, str]
    body: bytes = b""
    url: str | None = None
    """A whole address, instead of `path`."""
    after_s: float = 0.0
    """Pause before it."""
    streams: bool = False
    """Whether a reply with status 200 is fed to the reader as it arrives."""


class AnswerSteps(Protocol):
    """Events are those of one stream and keep its grammar, whether the call wants a stream or not.
    After a ReplyEnd or ReplyFailure there is no next request."""

    def next_request(self) -> ProviderRequest | None:
        """The next request; None when the answer is complete. Repeated calls give the same."""

    def cancel_request(self) -> ProviderRequest | None:
        """The request that stops an answer that is no longer needed, and its cost; None if nothing
        runs."""

    def take(self, status: int, headers: Headers, body: bytes) -> list[Event]:
        """A reply that was read whole."""

    def feed(self, piece: bytes) -> list[Event]:
        """A piece of a body that is fed as it comes."""

    def end_of_body(self) -> list[Event]:
        """After the last piece; the body may be left before it, once its request is past."""
