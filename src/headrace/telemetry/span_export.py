"""Where spans go: a collector that may be slow or dead, without anybody's waiting for it.

A thread sends them in batches; what does not fit its queue is lost, and nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from headrace import __version__

logger = logging.getLogger(__name__)

# Seconds a collector may take for a batch.
EXPORT_TIMEOUT_S = 5.0


class QuietExporter(SpanExporter):
    """An exporter that seldom logs that spans are lost: at the 1st, 2nd, 4th, 8th batch of them."""

    def __init__(self, exporter: SpanExporter, url: str) -> None:
        self._exporter = exporter
        self._url = url
        self.lost_batches = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send a batch."""
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # of a library's thread, which it would end
            logger.debug("exporting spans raised", exc_info=error)
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            self.lost_batches += 1
            if self.lost_batches.bit_count() == 1:
                logger.warning(
                    "%d batch(es) of spans are lost: %s accepts none", self.lost_batches, self._url
                )
        return result

    def shutdown(self) -> None:
        """End it."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing waits here."""
        return self._exporter.force_flush(timeout_millis)


def tracer_provider(url: str, service: str) -> TracerProvider:
    """A provider of spans that go to a collector. service: its name, unless the environment has one
    (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES)."""
    # The library tells of each attempt; QuietExporter tells what matters of them.
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)
    provider = TracerProvider(
        resource=Resource.create({SERVICE_VERSION: __version__} | _service_name(service)),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint=url, timeout=EXPORT_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(QuietExporter(exporter, url)))
    return provider


def shut_down(provider: TracerProvider, within_s: float) -> None:
    """Send what is left, and wait so long for it; the thread dies with the process otherwise."""
    closing = threading.Thread(target=provider.shutdown, daemon=True)
    closing.start()
    closing.join(within_s)


def _service_name(service: str) -> dict[str, str]:
    given = Resource.create().attributes.get(SERVICE_NAME)
    named = isinstance(given, str) and not given.startswith("unknown_service")
    return {} if named else {SERVICE_NAME: service}
