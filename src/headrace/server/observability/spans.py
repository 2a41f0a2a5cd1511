"""Spans of calls that have ended: OpenTelemetry's conventions for generative AI, and vLLM's names.

One span per call, in the trace the client named in `traceparent`; below it, per request in the
engine, its time in the queue, in prefill and in decode. Spans are made when a call is over, so
serving pays nothing meanwhile, and sent by a thread in batches: with the collector dead, what does
not fit its queue is lost, and nothing else.
"""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from headrace import __version__
from headrace.server.observability.access_log import summary
from headrace.telemetry.call import CallRecord, Timeline
from headrace.telemetry.span_export import shut_down, tracer_provider

# Seconds that closing may take for what is left.
CLOSE_TIMEOUT_S = 2.0

OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/messages": "chat",
    "/api/chat": "chat",
    "/api/generate": "text_completion",
}

# By the name of the summary's field. Of two names the first is OpenTelemetry's, the second vLLM's.
_ATTRIBUTES = {
    "prompt_tokens": ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens",),
    "n": ("gen_ai.request.choice.count", "gen_ai.request.n"),
    "engine_id": ("gen_ai.response.id", "gen_ai.request.id"),
    "queue_s": ("gen_ai.latency.time_in_queue",),
    "ttft_s": ("gen_ai.latency.time_to_first_token",),
    "e2e_s": ("gen_ai.latency.e2e",),
    "status": ("http.response.status_code",),
    "endpoint": ("http.route",),
    "client_request_id": ("headrace.client_request_id",),
    "preemptions": ("headrace.num_preemptions",),
    "stream": ("headrace.stream",),
}


class Spans:
    """A maker of spans with a provider, which it ends with itself."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("headrace", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def call_ended(self, record: CallRecord, *, model: str, ended_s: float) -> None:
        """Make spans of a call; ended_s is of the clock its times are of."""
        at = _Moments(record)
        operation = OPERATIONS.get(record.endpoint)
        span = self._tracer.start_span(
            f"{operation} {model}".strip() if operation else record.endpoint,
            context=self._propagator.extract(dict(record.headers), Context()),
            kind=SpanKind.SERVER,
            start_time=record.began_ns,
        )
        if span.is_recording():
            span.set_attributes(_attributes(record, operation, model, ended_s))
            inside = set_span_in_context(span, Context())
            for timeline in record.timelines:
                _events(span, timeline, at)
                self._parts(timeline, at, inside)
            _set_status(span, record)
        span.end(at.ns(ended_s))

    def close(self) -> None:
        """Send what is left, for a moment at most."""
        shut_down(self._provider, CLOSE_TIMEOUT_S)

    def _parts(self, timeline: Timeline, at: _Moments, inside: Context) -> None:
        """The engine's times, laid end to end back from the first token, as this clock saw it."""
        parts: list[tuple[str, float, float]] = []
        first_s = timeline.first_token_s
        if first_s is not None:
            scheduled_s = first_s - timeline.prefill_s
            parts += [
                ("queue", scheduled_s - timeline.queue_s, scheduled_s),
                ("prefill", scheduled_s, first_s),
                ("decode", first_s, timeline.last_token_s),
            ]
        elif timeline.started_s is not None:
            ended_s = timeline.ended_s or timeline.started_s
            parts += [
                ("queue", timeline.started_s - timeline.queue_s, timeline.started_s),
                ("prefill", timeline.started_s, ended_s),
            ]
        elif timeline.ended_s is not None:
            parts.append(("queue", timeline.arrival_s, timeline.ended_s))
        for name, begin_s, end_s in parts:
            part = self._tracer.start_span(
                name,
                context=inside,
                start_time=at.ns(begin_s),
                attributes={"gen_ai.request.id": timeline.request_id},
            )
            part.end(at.ns(end_s))


class _Moments:
    """Unix time in nanoseconds of seconds of the server's clock."""

    def __init__(self, record: CallRecord) -> None:
        self._began_ns = record.began_ns
        self._arrival_s = record.arrival_s

    def ns(self, seconds: float) -> int:
        """No moment of a call is before its beginning."""
        return self._began_ns + max(0, round((seconds - self._arrival_s) * 1e9))


def open_spans(url: str) -> Spans:
    """Spans that go to a collector, in batches."""
    return Spans(tracer_provider(url, "headrace"))


def _attributes(
    record: CallRecord, operation: str | None, model: str, ended_s: float
) -> dict[str, AttributeValue]:
    fields = summary(record, ended_s)
    attributes: dict[str, AttributeValue] = {
        name: fields[key]
        for key, names in _ATTRIBUTES.items()
        if fields.get(key) is not None
        for name in names
    }
    attributes["headrace.request_id"] = record.request_id
    if operation is not None:
        attributes["gen_ai.operation.name"] = operation
        attributes["gen_ai.provider.name"] = "headrace"
    if model:
        attributes["gen_ai.request.model"] = attributes["gen_ai.response.model"] = model
    if record.timelines:
        first = record.timelines[0]
        attributes["gen_ai.usage.num_sequences"] = len(record.timelines)
        attributes["gen_ai.request.max_tokens"] = first.max_tokens
        attributes["gen_ai.response.finish_reasons"] = [
            one.reason or "abort" for one in record.timelines
        ]
        for name, value in (("temperature", first.temperature), ("top_p", first.top_p)):
            if value is not None:
                attributes[f"gen_ai.request.{name}"] = value
    return attributes


def _events(span: Span, timeline: Timeline, at: _Moments) -> None:
    moments = (("started", timeline.started_s), ("first_token", timeline.first_token_s))
    for name, seconds in moments:
        if seconds is not None:
            span.add_event(name, {"gen_ai.request.id": timeline.request_id}, at.ns(seconds))


def _set_status(span: Span, record: CallRecord) -> None:
    """An error where the reply is one of ours, or a stream ended with one; not what clients do."""
    reasons = {one.reason for one in record.timelines}
    status = record.status
    if status is not None and status >= 400:
        span.set_attribute("error.type", str(status))
    elif "error" in reasons:
        span.set_attribute("error.type", "engine_error")
    if (status is not None and status >= 500) or "error" in reasons:
        span.set_status(Status(StatusCode.ERROR))
