"""The counts and traces of a process, whatever its configuration."""

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
    """The metrics and traces of a process.

    `open_spans` makes a sender of spans for a collector's address. `in_flight` counts model
    requests that are not over.
    """

    def __init__(self, open_spans: Callable[[str], SpanMaker] | None = None) -> None:
        self._open_spans = open_spans
        self._tracing = Tracing("none")
        self._standing: Callable[[], Standing] | None = None
        self._exposition: tuple[str, Callable[[], bytes]] | None = None
        self.requests = RequestSeries()
        self.traffic = TrafficSeries()
        self.http = CounterSeries(
            "headrace:http_requests",
            "HTTP requests by path and status; 499 means that the client left.",
            ("endpoint", "status"),
        )
        self.in_flight = 0
        self._began_s: float | None = None

    def shows(self, names: Names, standing: Callable[[], Standing], tracing: Tracing) -> None:
        """Use a new configuration: its names, its state, and where its spans go."""
        self.requests.names = names
        self._standing = standing
        before, self._tracing = self._tracing, tracing
        if before.spans is not None and before.spans is not tracing.spans:
            before.spans.close()

    def began_s(self, now_s: float) -> float:
        """Unix time of the first configuration, which is `now_s` at the first call."""
        if self._began_s is None:
            self._began_s = now_s
        return self._began_s

    def take(self, entry: Entry) -> None:
        """Count a request that is over."""
        self.requests.take(entry)

    def answered(self, endpoint: str, status: int | None) -> None:
        """Count an HTTP reply. `endpoint` is a known path, never one from a client. `status` is
        None if the client left before a reply."""
        self.http.add((endpoint, str(status or _CLIENT_GONE)))

    @property
    def series(self) -> tuple[CounterSeries | HistogramSeries, ...]:
        """All series, in the order of /metrics."""
        return (*self.requests.all(), *self.traffic.all(), self.http)

    def metrics(self) -> tuple[str, bytes]:
        """The content type and the text of /metrics."""
        if self._exposition is None:
            from headrace.gateway.telemetry.exposition import CONTENT_TYPE, Exposition

            made = Exposition(self.series, self.standing, lambda: self.in_flight)
            self._exposition = CONTENT_TYPE, made.text
        kind, text = self._exposition
        return kind, text()

    def tracing(self, endpoint: str | None, pass_on: PassOn) -> Tracing:
        """The tracing of a configuration; the sender of spans stays if its address is the same.

        Raises ConfigError if spans are configured and cannot be made.
        """
        if endpoint is None:
            return Tracing(pass_on)
        if self._tracing.spans is not None and self._tracing.endpoint == endpoint:
            return Tracing(pass_on, self._tracing.spans, endpoint)
        return Tracing(pass_on, (self._open_spans or _open_spans)(endpoint), endpoint)

    def close(self, within_s: float = 0.0) -> None:
        """Send pending spans, waiting up to `within_s`."""
        if self._tracing.spans is not None:
            self._tracing.spans.close(within_s)
        self._tracing = Tracing("none")

    def standing(self) -> Standing:
        """The state of the current configuration."""
        assert self._standing is not None
        return self._standing()


def _open_spans(endpoint: str) -> SpanMaker:
    # Checked before the import, which would fail.
    missing = missing_for_tracing()
    if missing is not None:
        raise ConfigError(
            f"tracing.endpoint: tracing needs {missing}, which is not installed; run "
            "`pip install 'headrace[otel]'`, or omit the setting"
        )
    from headrace.gateway.telemetry.spans import open_spans

    return open_spans(endpoint)
