"""Whether requests are traced, and which providers are sent a client's trace (W3C Trace Context).

Without an address for spans nothing is recorded: a client's `traceparent` is passed on unchanged.
With one it names the span of the attempt. OpenTelemetry is imported only then.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

from headrace.gateway.serving.entry import Entry, Operation
from headrace.gateway.targets.provider import Provider
from headrace.gateway.targets.target import Target
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.failure import Failure

PassOn = Literal["own", "all", "none"]
Headers = tuple[tuple[str, str], ...]

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
# The least length that the specification requires to be passed on.
_MOST_STATE_CHARS = 512
# Endings that no public host name has.
_OWN_ENDINGS = (".local", ".internal", ".lan", ".home.arpa")


class Traced(Protocol):
    """The part of a request that its span shows; see `Incoming`."""

    @property
    def id(self) -> str: ...

    @property
    def operation(self) -> Operation: ...

    @property
    def path(self) -> str: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> JsonObject: ...

    @property
    def model(self) -> str: ...

    @property
    def stream(self) -> bool: ...


class AttemptTrace(Protocol):
    """The trace of one attempt; it ends with the request if not before."""

    @property
    def headers(self) -> Headers:
        """The trace headers for the provider."""

    def failed(self, failure: Failure) -> None:
        """Record that the attempt failed."""


class RequestTrace(Protocol):
    """The trace of one client request."""

    def attempt(self, target: Target) -> AttemptTrace:
        """Start the trace of an attempt."""

    def ended(self, entry: Entry) -> None:
        """End the trace."""


class Moment(NamedTuple):
    """A moment, as Unix time and as a reading of a monotonic clock, in nanoseconds."""

    wall_ns: int
    monotonic_ns: int
    clock_ns: Callable[[], int]

    def now_ns(self) -> int:
        """Unix time now, by the monotonic clock."""
        return self.wall_ns + self.clock_ns() - self.monotonic_ns


class SpanMaker(Protocol):
    """A tracer: makes spans and sends them; never waits and never raises."""

    def began(
        self, asked: Traced, passes_to: Callable[[Provider], bool], arrived: Moment
    ) -> RequestTrace:
        """Start the trace of a request."""

    def close(self, within_s: float = 0.0) -> None:
        """Send pending spans, waiting up to `within_s`."""


class Tracing:
    """The tracing of a configuration.

    `pass_on` says which providers are sent traces: your own (on this machine or in a private
    network), all, or none. `endpoint` is where `spans` are sent.
    """

    def __init__(
        self,
        pass_on: PassOn = "own",
        spans: SpanMaker | None = None,
        endpoint: str | None = None,
    ) -> None:
        self._pass_on = pass_on
        self.spans = spans
        self.endpoint = endpoint

    def began(self, asked: Traced, arrived: Moment) -> RequestTrace:
        """Start the trace of a request that arrived at that moment."""
        if self.spans is not None:
            return self.spans.began(asked, self.passes_to, arrived)
        if self._pass_on == "none" or "traceparent" not in asked.headers:
            return UNTRACED
        headers = trace_headers(asked.headers)
        return _PassedOn(headers, self.passes_to) if headers else UNTRACED

    def passes_to(self, provider: Provider) -> bool:
        """Whether a provider is sent traces."""
        return self._pass_on == "all" or (self._pass_on == "own" and is_own(provider))


def trace_headers(headers: Mapping[str, str]) -> Headers:
    """A client's trace headers if they are valid; a state without a parent is dropped."""
    parent = headers.get("traceparent", "").strip()
    if not _TRACEPARENT.fullmatch(parent):
        return ()
    state = headers.get("tracestate", "").strip()
    if 0 < len(state) <= _MOST_STATE_CHARS and state.isascii() and state.isprintable():
        return (("traceparent", parent), ("tracestate", state))
    return (("traceparent", parent),)


def is_own(provider: Provider) -> bool:
    """Whether it is on this machine, or has an address or name of a private network."""
    host = provider.base.origin.host.rstrip(".").lower()
    try:
        return ipaddress.ip_address(host.strip("[]")).is_private
    except ValueError:
        return "." not in host or host.endswith(_OWN_ENDINGS)


class _Untraced:
    headers: Headers = ()

    def attempt(self, target: Target) -> AttemptTrace:
        return self

    def failed(self, failure: Failure) -> None:
        pass

    def ended(self, entry: Entry) -> None:
        pass


class _Told:
    def __init__(self, headers: Headers) -> None:
        self.headers = headers

    def failed(self, failure: Failure) -> None:
        pass


class _PassedOn:
    def __init__(self, headers: Headers, passes_to: Callable[[Provider], bool]) -> None:
        self._headers = headers
        self._passes_to = passes_to

    def attempt(self, target: Target) -> AttemptTrace:
        return _Told(self._headers) if self._passes_to(target.provider) else UNTRACED

    def ended(self, entry: Entry) -> None:
        pass


UNTRACED = _Untraced()
NOT_TRACED = Tracing("none")
