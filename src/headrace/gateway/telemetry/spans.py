"""Spans of requests and their attempts, by OpenTelemetry's conventions for generative AI.

There is one span of kind server per request, in the client's trace, and below it one of kind client
per attempt. Tokens are only on the span of the attempt that answered, so that a sum over spans
counts them once. The gateway's own cost of a request is on the server span.
"""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from headrace import __version__
from headrace.gateway.serving.entry import Entry
from headrace.gateway.targets.provider import Provider
from headrace.gateway.targets.target import Target
from headrace.gateway.telemetry.names import vendor
from headrace.gateway.telemetry.request_series import error_type
from headrace.gateway.telemetry.tracing import Headers, Moment, Traced, trace_headers
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.failure import Failure
from headrace.protocol.neutral.usage import TokenUsage
from headrace.telemetry.span_export import shut_down, tracer_provider
from headrace.telemetry.traces_address import traces_url

SETTING = "tracing.endpoint"

_PROPAGATOR = TraceContextTextMapPropagator()
# Fields of a client's body, by the attribute that shows them.
_REQUEST_FIELDS = {
    "gen_ai.request.max_tokens": ("max_completion_tokens", "max_tokens", "max_output_tokens"),
    "gen_ai.request.temperature": ("temperature",),
    "gen_ai.request.top_p": ("top_p",),
    "gen_ai.request.choice.count": ("n",),
}


class Spans:
    """A maker of spans with a tracer provider, which is closed with it."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("headrace", __version__)

    def began(
        self, asked: Traced, passes_to: Callable[[Provider], bool], arrived: Moment
    ) -> RequestSpan:
        """Start the span of a request."""
        return RequestSpan(self._tracer, asked, passes_to, arrived)

    def close(self, within_s: float = 0.0) -> None:
        """Send pending spans, waiting up to `within_s`."""
        shut_down(self._provider, within_s)


class RequestSpan:
    """The span of a request, a `RequestTrace`."""

    def __init__(
        self,
        tracer: Tracer,
        asked: Traced,
        passes_to: Callable[[Provider], bool],
        arrived: Moment,
    ) -> None:
        self._tracer = tracer
        self._passes_to = passes_to
        self._arrived = arrived
        self._attempts: list[AttemptSpan] = []
        self._asked = _asked(asked)
        self._operation = asked.operation
        self._span = tracer.start_span(
            f"{asked.operation} {asked.model}",
            context=_PROPAGATOR.extract(dict(trace_headers(asked.headers)), Context()),
            kind=SpanKind.SERVER,
            start_time=arrived.wall_ns,
            attributes={
                "gen_ai.operation.name": asked.operation,
                "gen_ai.provider.name": "headrace",
                "gen_ai.request.model": asked.model,
                "http.request.method": "POST",
                "http.route": asked.path,
                "headrace.request_id": asked.id,
                **self._asked,
            },
        )
        self._inside = set_span_in_context(self._span, Context())

    def attempt(self, target: Target) -> AttemptSpan:
        """Start the span of an attempt."""
        provider = target.provider
        origin = provider.base.origin
        span = self._tracer.start_span(
            f"{self._operation} {target.model}",
            context=self._inside,
            kind=SpanKind.CLIENT,
            start_time=self._arrived.now_ns(),
            attributes={
                "gen_ai.operation.name": self._operation,
                "gen_ai.provider.name": vendor(provider),
                "gen_ai.request.model": target.model,
                "server.address": origin.host,
                "server.port": origin.port,
                "headrace.target": target.name,
                **self._asked,
            },
        )
        made = AttemptSpan(span, target.name, self._passes_to(provider), self._arrived)
        self._attempts.append(made)
        return made

    def ended(self, entry: Entry) -> None:
        """End the span, and those of attempts that are still open."""
        for attempt in self._attempts:
            attempt.ended(entry)
        span = self._span
        if span.is_recording():
            span.set_attributes(_of_request(entry))
            kind = error_type(entry)
            if kind:
                span.set_attribute("error.type", kind)
            # A client's mistake is not a server error.
            if entry.status >= 500 or entry.outcome == "cut":
                span.set_status(Status(StatusCode.ERROR))
        span.end(self._arrived.now_ns())


class AttemptSpan:
    """The span of an attempt, an `AttemptTrace`. `tells`: whether the provider gets the trace."""

    def __init__(self, span: Span, target: str, tells: bool, arrived: Moment) -> None:
        self._span = span
        self._target = target
        self._arrived = arrived
        self._over = False
        self.headers: Headers = ()
        if tells:
            carrier: dict[str, str] = {}
            _PROPAGATOR.inject(carrier, set_span_in_context(span, Context()))
            self.headers = tuple(carrier.items())

    def failed(self, failure: Failure) -> None:
        """Record a failure without the provider's message, which may quote the request."""
        if failure.status:
            self._span.set_attribute("http.response.status_code", failure.status)
        self._fail(failure.kind)

    def ended(self, entry: Entry) -> None:
        """End the span with the request; if it is the attempt that answered, with its usage."""
        if self._over:
            return
        if entry.target != self._target:  # the client left while it was waited for
            # or another target answered first
            self._fail("cancelled" if entry.outcome == "answered" else entry.outcome)
            return
        span = self._span
        if span.is_recording():
            span.set_attribute("http.response.status_code", 200)
            if entry.finish is not None:
                span.set_attribute("gen_ai.response.finish_reasons", [entry.finish])
            if entry.usage is not None:
                span.set_attributes(_of_usage(entry.usage))
        if entry.outcome == "answered":
            self._end()
        else:
            self._fail(error_type(entry))

    def _fail(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        if kind not in ("client_gone", "cancelled"):
            self._span.set_status(Status(StatusCode.ERROR))
        self._end()

    def _end(self) -> None:
        self._over = True
        self._span.end(self._arrived.now_ns())


def open_spans(endpoint: str) -> Spans:
    """Spans that are sent to a collector. Raises ConfigError if they cannot be made."""
    return Spans(tracer_provider(traces_url(endpoint, SETTING), "headrace-gateway"))


def _asked(asked: Traced) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {}
    body: JsonObject = asked.body
    for attribute, fields in _REQUEST_FIELDS.items():
        for name in fields:
            value = body.decoded(name) if name in body else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                attributes[attribute] = value
                break
    if asked.stream:
        attributes["gen_ai.request.stream"] = True
    return attributes


def _of_request(entry: Entry) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "http.response.status_code": entry.status or 499,
        "headrace.attempts": len(entry.attempts),
        "headrace.outcome": entry.outcome,
        "headrace.overhead_us": entry.overhead_us,
    }
    for name, value in (
        ("headrace.target", entry.target),
        ("headrace.cost_nusd", entry.cost_nusd),
        ("headrace.key", entry.key or None),
        ("headrace.cache", entry.cache or None),
        ("headrace.guardrails", ", ".join(entry.guardrails) or None),
        ("headrace.prompt", entry.prompt or None),
    ):
        if value is not None:
            attributes[name] = value
    if entry.first_token_ms is not None:
        attributes["gen_ai.response.time_to_first_chunk"] = entry.first_token_ms * 1e-3
    return attributes


def _of_usage(usage: TokenUsage) -> dict[str, AttributeValue]:
    cache_writes = usage.cache_write_tokens + usage.cache_write_1h_tokens
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": cache_writes,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
    }
