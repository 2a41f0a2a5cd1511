"""Spans of calls: their attributes, their place in the client's trace, and a dead collector."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from headrace.config import ServerConfig
from headrace.errors import ConfigError
from headrace.server.observability import tracing
from headrace.server.observability.access_log import summary
from headrace.server.observability.spans import Spans, open_spans
from headrace.telemetry import traces_address
from headrace.telemetry.call import CallRecord, Timeline
from headrace.telemetry.span_export import QuietExporter
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def record(**changes: Any) -> CallRecord:
    """A chat of two choices that began at second 50 of the clock and at 1000 s of Unix time."""
    first = Timeline(
        50.0,
        prompt_tokens=12,
        max_tokens=64,
        request_id="chatcmpl-x-0",
        n=2,
        temperature=0.5,
        top_p=0.9,
        started_s=50.5,
        first_token_s=52.0,
        last_token_s=53.0,
        ended_s=53.0,
        generated_tokens=7,
        cached_tokens=8,
        queue_s=0.25,
        prefill_s=1.25,
        reason="stop",
    )
    waited = Timeline(50.0, 12, 64, request_id="chatcmpl-x-1", n=2, ended_s=53.5, reason="abort")
    fields: dict[str, Any] = {
        "request_id": "req",
        "endpoint": "/v1/chat/completions",
        "arrival_s": 50.0,
        "began_ns": 1000 * 10**9,
        "headers": {"traceparent": f"00-{TRACE}-{PARENT}-01"},
        "status": 200,
        "stream": True,
        "timelines": [first, waited],
    }
    return CallRecord(**(fields | changes))


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[Spans]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    opened = Spans(provider)
    yield opened
    opened.close()


def _call(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = [one for one in exporter.get_finished_spans() if one.kind is SpanKind.SERVER]
    return span


def test_a_call(spans: Spans, exporter: InMemorySpanExporter) -> None:
    spans.call_ended(record(), model="m", ended_s=54.0)
    span = _call(exporter)
    assert span.name == "chat m"
    assert (span.start_time, span.end_time) == (1000 * 10**9, 1004 * 10**9)
    assert span.parent is not None and span.context is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == PARENT
    assert span.status.status_code is StatusCode.UNSET
    assert [(event.name, event.timestamp) for event in span.events] == [
        ("started", 1000_500_000_000),
        ("first_token", 1002_000_000_000),
    ]
    assert dict(span.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "headrace",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m",
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.n": 2,
        "gen_ai.request.id": "chatcmpl-x-0",
        "gen_ai.response.id": "chatcmpl-x-0",
        "gen_ai.response.finish_reasons": ("stop", "abort"),
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.prompt_tokens": 12,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.completion_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 8,
        "gen_ai.usage.num_sequences": 2,
        "gen_ai.latency.time_in_queue": 0.25,
        "gen_ai.latency.time_to_first_token": 2.0,
        "gen_ai.latency.e2e": 4.0,
        "headrace.request_id": "req",
        "headrace.num_preemptions": 0,
        "headrace.stream": True,
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
    }


def test_the_engines_times_are_child_spans(spans: Spans, exporter: InMemorySpanExporter) -> None:
    spans.call_ended(record(), model="m", ended_s=54.0)
    call = _call(exporter)
    parts = [one for one in exporter.get_finished_spans() if one is not call]
    assert [
        (one.name, one.start_time - 1000 * 10**9, one.end_time - 1000 * 10**9)
        for one in parts
        if one.start_time is not None and one.end_time is not None
    ] == [
        ("queue", 500_000_000, 750_000_000),
        ("prefill", 750_000_000, 2_000_000_000),
        ("decode", 2_000_000_000, 3_000_000_000),
        ("queue", 0, 3_500_000_000),
    ]
    assert all(one.parent == call.context for one in parts)


@pytest.mark.parametrize(
    ("status", "reason", "expected", "error_type"),
    [
        (200, "stop", StatusCode.UNSET, None),
        (200, "error", StatusCode.ERROR, "engine_error"),
        (500, "error", StatusCode.ERROR, "500"),
        (503, "abort", StatusCode.ERROR, "503"),
        (429, "abort", StatusCode.UNSET, "429"),
        (None, "abort", StatusCode.UNSET, None),
    ],
)
def test_status(
    spans: Spans,
    exporter: InMemorySpanExporter,
    status: int | None,
    reason: str,
    expected: StatusCode,
    error_type: str | None,
) -> None:
    call = record(status=status)
    call.timelines[0].reason = reason
    spans.call_ended(call, model="m", ended_s=54.0)
    span = _call(exporter)
    assert span.status.status_code is expected
    assert (span.attributes or {}).get("error.type") == error_type


@pytest.mark.parametrize("parent", ["", "00-zz-1-01", f"00-{'0' * 32}-{PARENT}-01", "\x00" * 99])
def test_a_bad_traceparent_is_a_trace_of_its_own(
    spans: Spans, exporter: InMemorySpanExporter, parent: str
) -> None:
    spans.call_ended(record(headers={"traceparent": parent}), model="m", ended_s=54.0)
    assert _call(exporter).parent is None


def test_what_the_client_does_not_want_sampled_is_not(
    spans: Spans, exporter: InMemorySpanExporter
) -> None:
    call = record(headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})
    spans.call_ended(call, model="m", ended_s=54.0)
    assert exporter.get_finished_spans() == ()


class Collector(BaseHTTPRequestHandler):
    """Takes spans and remembers them; the server's `got` is a list of (path, request)."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((self.path, ExportTraceServiceRequest.FromString(body)))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def test_spans_reach_a_collector() -> None:
    server = HTTPServer(("127.0.0.1", 0), Collector)
    server.got = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = traces_address.traces_url(f"http://127.0.0.1:{server.server_port}", "endpoint")
        opened = open_spans(url)
        opened.call_ended(record(), model="m", ended_s=54.0)
        opened.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    ((path, request),) = server.got  # type: ignore[attr-defined]
    assert path == "/v1/traces"
    (resource,) = request.resource_spans
    assert ("service.name", "headrace") in {
        (one.key, one.value.string_value) for one in resource.resource.attributes
    }
    assert {span.name for scope in resource.scope_spans for span in scope.spans} == {
        "chat m",
        "queue",
        "prefill",
        "decode",
    }


def test_a_dead_collector_costs_spans_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened = open_spans("http://127.0.0.1:9/v1/traces")
    begun_s = time.monotonic()
    for _ in range(5000):
        opened.call_ended(record(timelines=[]), model="m", ended_s=54.0)
    opened.close()
    assert time.monotonic() - begun_s < 20
    assert "Traceback" not in caplog.text


def test_losses_are_told_seldom(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(InMemorySpanExporter):
        def export(self, spans: Any) -> Any:
            raise OSError("no")

    quiet = QuietExporter(Broken(), "http://x")
    with caplog.at_level(logging.WARNING):
        for _ in range(9):
            quiet.export(())
    assert [record.args[0] for record in caplog.records if record.args] == [1, 2, 4, 8]


@pytest.mark.parametrize("endpoint", ["", "localhost:4318", "grpc://x:1", "http://"])
def test_an_endpoint_that_is_no_url(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="otlp_traces_endpoint"):
        tracing.require_tracing(endpoint)


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://a:1", "http://a:1/v1/traces"),
        ("http://a:1/", "http://a:1/v1/traces"),
        ("https://a/otlp/x", "https://a/otlp/x"),
    ],
)
def test_urls(endpoint: str, url: str) -> None:
    assert traces_address.traces_url(endpoint, "endpoint") == url


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(traces_address, "find_spec", find_spec)
    tracing.require_tracing(None)
    with pytest.raises(ConfigError, match=r"pip install headrace\[otel\]"):
        tracing.open_tracing("http://localhost:4318")


@pytest.mark.process
def test_serving_without_traces_never_imports_opentelemetry() -> None:
    code = (
        "import sys, headrace, headrace.server.app, headrace.server.run, headrace.llm\n"
        "from headrace.server.state import ServerState\n"
        "ServerState().close()\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_call_over_http(start: Callable[..., Running]) -> None:
    """The client's trace goes on in the server; what the engine does is within the call."""
    server = HTTPServer(("127.0.0.1", 0), Collector)
    server.got = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        config = ServerConfig(otlp_traces_endpoint=f"http://127.0.0.1:{server.server_port}")
        running = start(MockEngine(says("hello")), config=config)
        running.post(
            "/v1/completions",
            {"prompt": "x", "max_tokens": 3},
            headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"},
        )
        running.client.get("/health")
        running.state.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    spans = [
        span
        for _, request in server.got  # type: ignore[attr-defined]
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    (call,) = [span for span in spans if span.parent_span_id.hex() == PARENT]
    assert call.name == "text_completion mock-model"
    attributes = {one.key: one.value for one in call.attributes}
    assert attributes["headrace.request_id"].string_value == "mine"
    assert attributes["gen_ai.usage.output_tokens"].int_value == 3
    parts = [span for span in spans if span.parent_span_id == call.span_id]
    assert [span.name for span in parts] == ["queue", "prefill", "decode"]
    for span in parts:
        assert call.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= call.end_time_unix_nano


DOCS = Path(__file__).resolve().parents[3] / "docs" / "observing.md"


def test_everything_on_a_span_and_in_the_log_is_documented(
    spans: Spans, exporter: InMemorySpanExporter
) -> None:
    text = DOCS.read_text(encoding="utf-8")
    failed = record(client_id="c", status=500)
    spans.call_ended(failed, model="m", ended_s=54.0)
    names = {*(_call(exporter).attributes or {}), *summary(failed, 54.0)}
    names |= {span.name for span in exporter.get_finished_spans()} - {"chat m"}
    names |= {event.name for event in _call(exporter).events}
    missing = {name for name in names if f"`{name}`" not in text}
    assert not missing
