"""A client's trace: to whom it is passed on, and the spans of requests and attempts."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from headrace.errors import ConfigError
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.telemetry.spans import Spans, open_spans
from headrace.gateway.telemetry.telemetry import Telemetry
from headrace.gateway.telemetry.tracing import trace_headers
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import STREAM_HEAD, answers, chunk, fails, framed
from tests.gateway.telemetry.scraped import CHAT, settings, told_by
from tests.gateway.upstream.scripted import served

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
HEADERS = {"traceparent": TRACEPARENT, "tracestate": "a=b"}


def header(request: bytes, name: str) -> str | None:
    """Of a request as it came to a provider."""
    for line in request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]:
        key, _, value = line.partition(":")
        if key.lower() == name:
            return value.strip()
    return None


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def traced(config: dict[str, Any], exporter: InMemorySpanExporter) -> Gateway:
    """A gateway whose spans go to `exporter`."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = Spans(provider)
    tracing = {"endpoint": "http://127.0.0.1:9", **config.pop("tracing", {})}
    return told_by(Telemetry(lambda _: spans), {**config, "tracing": tracing})


def of_kind(exporter: InMemorySpanExporter, kind: SpanKind) -> list[ReadableSpan]:
    return [one for one in exporter.get_finished_spans() if one.kind is kind]


async def test_without_spans_a_trace_is_passed_on_as_it_came() -> None:
    async with served(answers()) as provider:
        await ask(gateway(settings(provider.origin), []).app, CHAT, headers=HEADERS)
        await ask(gateway(settings(provider.origin), []).app, CHAT)
        none = settings(provider.origin, tracing={"pass_on": "none"})
        await ask(gateway(none, []).app, CHAT, headers=HEADERS)
        sent = [header(one, "traceparent") for one in provider.requests]
        assert sent == [TRACEPARENT, None, None]
        assert header(provider.requests[0], "tracestate") == "a=b"


@pytest.mark.parametrize(
    ("pass_on", "base_url", "passes"),
    [
        ("own", "http://10.1.2.3/v1", True),
        ("own", "http://[::1]:80/v1", True),
        ("own", "http://engine:8000/v1", True),
        ("own", "http://engine.default.svc.cluster.local/v1", True),
        ("own", "https://api.openai.com/v1", False),
        ("own", "http://8.8.8.8/v1", False),
        ("all", "https://api.openai.com/v1", True),
        ("none", "http://10.1.2.3/v1", False),
    ],
)
def test_which_providers_are_own(pass_on: str, base_url: str, passes: bool) -> None:
    config = settings("http://x", tracing={"pass_on": pass_on})
    config["providers"]["a"]["base_url"] = base_url
    built = gateway(config, [])
    assert built.serving.tracing.passes_to(built.providers["a"]) is passes


@pytest.mark.parametrize(
    "value", ["", "00-x", TRACEPARENT + "-more", TRACEPARENT.upper(), f"{TRACEPARENT}\r\nx: y"]
)
def test_what_is_no_trace_is_not_passed_on(value: str) -> None:
    assert trace_headers({"traceparent": value, "tracestate": "a=b"}) == ()


async def test_a_request_and_its_attempts_are_spans(exporter: InMemorySpanExporter) -> None:
    async with served(fails(503)) as bad, served(answers()) as good:
        built = traced(settings(bad.origin, good.origin), exporter)
        body = {**CHAT, "max_tokens": 9, "temperature": 0.5}
        assert (await ask(built.app, body, headers=HEADERS)).status == 200
        sent = [header(one.requests[0], "traceparent") or "" for one in (bad, good)]
    (server,) = of_kind(exporter, SpanKind.SERVER)
    failed, answered = of_kind(exporter, SpanKind.CLIENT)
    assert server.parent is not None and f"{server.parent.span_id:016x}" == PARENT
    assert server.name == "chat chat" and (failed.name, answered.name) == ("chat m0", "chat m1")
    for one, told in zip((failed, answered), sent, strict=True):
        assert one.parent is not None and server.context is not None and one.context is not None
        assert one.parent.span_id == server.context.span_id
        assert told == f"00-{TRACE}-{one.context.span_id:016x}-01", "the provider's parent"
    of_failed, of_answered = dict(failed.attributes or {}), dict(answered.attributes or {})
    assert of_failed["error.type"] == "overloaded"
    assert of_failed["http.response.status_code"] == 503
    assert failed.status.status_code is StatusCode.ERROR
    assert of_answered["gen_ai.usage.input_tokens"] == 12
    assert of_answered["gen_ai.usage.output_tokens"] == 3
    assert of_answered["gen_ai.response.finish_reasons"] == ("stop",)
    assert of_answered["gen_ai.provider.name"] == "b"
    assert of_answered["gen_ai.request.model"] == "m1"
    of_server = dict(server.attributes or {})
    assert of_server["gen_ai.request.model"] == "chat"
    assert of_server["gen_ai.request.max_tokens"] == 9
    assert of_server["gen_ai.request.temperature"] == 0.5
    assert of_server["headrace.cost_nusd"] == 18_000
    assert of_server["headrace.attempts"] == 2 and of_server["headrace.outcome"] == "answered"
    assert "gen_ai.usage.input_tokens" not in of_server, "a sum counts tokens once"
    assert server.start_time == 1_790_000_000 * 10**9
    assert server.end_time is not None and failed.start_time is not None
    assert server.start_time <= failed.start_time <= server.end_time


async def test_a_stream_that_breaks_off_is_an_error(exporter: InMemorySpanExporter) -> None:
    async def breaks(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM_HEAD + framed(chunk({"role": "assistant", "content": "half"})))
        await writer.drain()
        writer.close()

    async with served(breaks) as bad:
        await ask(traced(settings(bad.origin), exporter).app, {**CHAT, "stream": True})
    spans = exporter.get_finished_spans()
    assert len(spans) == 2
    assert [dict(one.attributes or {})["error.type"] for one in spans] == ["cut", "cut"]
    assert all(one.status.status_code is StatusCode.ERROR for one in spans)


async def test_spans_end_when_a_client_goes(exporter: InMemorySpanExporter) -> None:
    async def hangs(_number: int, _request: bytes, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(20)

    async with served(hangs) as provider:
        app = traced(settings(provider.origin), exporter).app
        await ask(app, CHAT, goes_when=lambda: bool(provider.requests))
    spans = exporter.get_finished_spans()
    assert sorted(one.kind.name for one in spans) == ["CLIENT", "SERVER"]
    assert all(dict(one.attributes or {})["error.type"] == "client_gone" for one in spans)
    assert all(one.status.status_code is StatusCode.UNSET for one in spans), "nobody's fault"


async def test_what_a_client_did_wrong_is_no_error_of_the_server(
    exporter: InMemorySpanExporter,
) -> None:
    built = traced(settings("http://127.0.0.1:9"), exporter)
    await ask(built.app, {**CHAT, "model": "nobody"})
    (server,) = exporter.get_finished_spans()
    assert dict(server.attributes or {})["error.type"] == "404"
    assert server.status.status_code is StatusCode.UNSET


def test_an_address_that_is_none() -> None:
    with pytest.raises(ConfigError, match=r"tracing\.endpoint"):
        open_spans("localhost:4318")


def test_a_new_configuration_keeps_its_spans_or_ends_them() -> None:
    opened: list[str] = []
    closed: list[str] = []

    class Quiet:
        def __init__(self, endpoint: str) -> None:
            self.endpoint = endpoint
            opened.append(endpoint)

        def began(self, *_: Any) -> Any:
            raise AssertionError

        def close(self, within_s: float = 0.0) -> None:
            closed.append(self.endpoint)

    telemetry = Telemetry(Quiet)

    def shows(endpoint: str | None) -> None:
        tracing = telemetry.tracing(endpoint, "own")
        telemetry.shows(telemetry.requests.names, lambda: pytest.fail("not asked"), tracing)

    for endpoint in ("http://a", "http://a", "http://b", None):
        shows(endpoint)
    assert opened == ["http://a", "http://b"] and closed == ["http://a", "http://b"]


@pytest.mark.process
def test_a_gateway_without_spans_imports_neither_library() -> None:
    code = (
        "import sys, headrace.gateway.building.gateway, headrace.gateway.run; "
        "print([one for one in ('opentelemetry', 'prometheus_client') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_packages_for_it_it_says_how_to_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As in an installation without the extra: neither found nor imported.
    for name in [one for one in sys.modules if one.split(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "headrace.gateway.telemetry.spans")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"tracing.endpoint: .* `pip install 'headrace\[otel\]'`"):
        Telemetry().tracing("http://localhost:4318", "own")
