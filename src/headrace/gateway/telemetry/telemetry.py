"""What a process counts and traces, whichever configuration is in force."""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import ConfigError
from headrace.gateway.serving.entry import Entry
from headrace.gateway.telemetry.names import Names
from headrace.gateway.telemetry.request_series import RequestSeries
from headrace.gateway.telemetry.standing import Standing
from headrace.gateway.telemetry.tracing import PassOn, SpanMaker, Tracing
from headrace.gateway.telemetry.traffic_series import TrafficSeries
from headrace.telemetry.series import CounterSeries, HistogramSeries
from headrace.telemetry.traces_address import missing_for_tracing

_CLIENT_GONE = 499


class Telemetry:
    """open_spans: makes what sends spans to a collector's address. in_flight: requests for an
    answer of a model that are not over."""

    def __init__(self, open_spans: Callable[[str], SpanMaker] | None = None) -> None:
        self._open_spans = open_spans
        self._tracing = Tracing("none")
        self._standing: Callable[[], Standing] | None = None
        self._exposition: tuple[str, Callable[[], bytes]] | None = None
        self.requests = RequestSeries()
        self.traffic = TrafficSeries()
        self.http = CounterSeries(
            "headrace:http_requests",
            "HTTP requests by path and status; 499 is a client that went away.",
            ("endpoint", "status"),
        )
        self.in_flight = 0
        self._began_s: float | None = None

    def shows(self, names: Names, standing: Callable[[], Standing], tracing: Tracing) -> None:
        """A configuration is in force: the names it has, how it stands when asked, and where its
        spans go."""
        self.requests.names = names
        self._standing = standing
        before, self._tracing = self._tracing, tracing
        if before.spans is not None and before.spans is not tracing.spans:
            before.spans.close()

    def began_s(self, now_s: float) -> float:
        """Unix time of the first configuration; it is now at the first call."""
        if self._began_s is None:
            self._began_s = now_s
        return self._began_s

    def take(self, entry: Entry) -> None:
        """A request is over."""
        self.requests.take(entry)

    def answered(self, endpoint: str, status: int | None) -> None:
        """endpoint: a path of ours, never one that a client made up. status: None if the client
        went before a reply."""
        self.http.add((endpoint, str(status or _CLIENT_GONE)))

    @property
    def series(self) -> tuple[CounterSeries | HistogramSeries, ...]:
        """All that is counted, in the order in which it is told."""
        return (*self.requests.all(), *self.traffic.all(), self.http)

    def metrics(self) -> tuple[str, bytes]:
        """Content type, and the text of /metrics."""
        if self._exposition is None:
            from headrace.gateway.telemetry.exposition import CONTENT_TYPE, Exposition

            made = Exposition(self.series, self.standing, lambda: self.in_flight)
            self._exposition = CONTENT_TYPE, made.text
        kind, text = self._exposition
        return kind, text()

    def tracing(self, endpoint: str | None, pass_on: PassOn) -> Tracing:
        """For a configuration; spans go on where they went as long as the address is the same.

        Raises ConfigError where spans are wanted and cannot be made.
        """
        if endpoint is None:
            return Tracing(pass_on)
        if self._tracing.spans is not None and self._tracing.endpoint == endpoint:
            return Tracing(pass_on, self._tracing.spans, endpoint)
        return Tracing(pass_on, (self._open_spans or _open_spans)(endpoint), endpoint)

    def close(self, within_s: float = 0.0) -> None:
        """Send the spans that are left, and wait so long for it."""
        if self._tracing.spans is not None:
            self._tracing.spans.close(within_s)
        self._tracing = Tracing("none")

    def standing(self) -> Standing:
        """How the configuration in force stands."""
        assert self._standing is not None
        return self._standing()


def _open_spans(endpoint: str) -> SpanMaker:
    # Asked before the import, which needs it.
    missing = missing_for_tracing()
    if missing is not None:
        raise ConfigError(
            f"tracing.endpoint: {missing} is not installed, and tracing needs it; run "
            "`pip install 'headrace[otel]'`, or leave it out"
        )
    from headrace.gateway.telemetry.spans import open_spans

    return open_spans(endpoint)
