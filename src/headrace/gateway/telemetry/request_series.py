"""Metrics of requests, from ledger lines.

Names with `gen_ai_` are OpenTelemetry's for generative AI, with Envoy AI Gateway's attribute
`gen_ai.original_model` (the model in the client's request) beside `gen_ai.request.model` (the model
in the provider's request). Their bounds are those of the conventions.
"""

from __future__ import annotations

from headrace.gateway.serving.entry import AttemptEntry, Entry
from headrace.gateway.telemetry.names import NO_NAMES, Names
from headrace.protocol.neutral.usage import TokenUsage
from headrace.telemetry import buckets
from headrace.telemetry.series import CounterSeries, HistogramSeries

# From 25 microseconds, which no Python code beats, to what only a starved machine takes.
OVERHEAD_S = (
    0.000025, 0.00005, 0.0001, 0.00015, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002,
    0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 1.0,
)  # fmt: skip
GEN_AI_TOKENS = tuple(float(4**power) for power in range(14))
GEN_AI_DURATION_S = tuple(round(0.01 * 2**power, 2) for power in range(14))
GEN_AI_FIRST_TOKEN_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
GEN_AI_PER_TOKEN_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
)  # fmt: skip
LINES = (
    "input", "cache_read", "cache_write", "cache_write_1h", "input_audio", "output", "reasoning",
    "output_audio",
)  # fmt: skip
"""Kinds of tokens that are billed separately; each token is of one kind."""

_GEN_AI = (
    "gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_original_model",
    "gen_ai_request_model",
)  # fmt: skip


class RequestSeries:
    """Counters and histograms of requests. Replace `names` when the configuration changes."""

    def __init__(self, names: Names = NO_NAMES) -> None:
        self.names = names
        model = ("model", "target")
        self.requests = CounterSeries(
            "headrace:gateway_requests",
            "Requests that were routed, by outcome and HTTP status.",
            ("model", "provider", "target", "outcome", "status"),
        )
        self.attempts = CounterSeries(
            "headrace:gateway_attempts", "Requests sent to targets.", ("target",)
        )
        self.failures = CounterSeries(
            "headrace:gateway_attempt_failures",
            "Requests sent to targets that failed, by kind of failure.",
            ("target", "kind"),
        )
        self.besides = CounterSeries(
            "headrace:gateway_side_calls",
            "Billed calls in addition to the answer that was sent, by purpose; not counted in any "
            "other count of requests.",
            ("purpose", "target"),
        )
        self.tokens = CounterSeries(
            "headrace:gateway_tokens",
            "Tokens by billing category; each token is in one category.",
            ("target", "line"),
        )
        self.estimated = CounterSeries(
            "headrace:gateway_estimated_requests",
            "Requests whose tokens are estimated because the provider did not report them.",
            model,
        )
        self.cost = CounterSeries(
            "headrace:gateway_cost_nanodollars",
            "Cost of requests in whole nano-dollars (1e-9 USD).",
            model,
        )
        self.unpriced = CounterSeries(
            "headrace:gateway_cost_unknown_requests",
            "Answered requests whose price is unknown; they are in no sum of costs.",
            model,
        )
        self.cache_hits = CounterSeries(
            "headrace:gateway_cache_hits",
            "Requests answered from a cache of the gateway, by cache.",
            ("model", "cache"),
        )
        self.guardrails = CounterSeries(
            "headrace:gateway_guardrails",
            "Requests in which a guardrail found something, by action.",
            ("guardrail", "action"),
        )
        self.first_token = HistogramSeries(
            "headrace:gateway_time_to_first_token_seconds",
            "Seconds from a request's arrival to its first content.",
            ("model",),
            buckets.TIME_TO_FIRST_TOKEN_S,
        )
        self.total = HistogramSeries(
            "headrace:gateway_request_seconds",
            "Seconds from a request's arrival to its end.",
            ("model",),
            buckets.REQUEST_S,
        )
        self.overhead = HistogramSeries(
            "headrace:gateway_overhead_seconds",
            "Seconds that the gateway itself spent on a request, without waiting for others.",
            (),
            OVERHEAD_S,
        )
        self.gen_ai_tokens = HistogramSeries(
            "gen_ai_client_token_usage",
            "Input and output tokens per request.",
            (*_GEN_AI, "gen_ai_token_type"),
            GEN_AI_TOKENS,
        )
        self.gen_ai_duration = HistogramSeries(
            "gen_ai_server_request_duration",
            "Seconds per request; failed ones with error_type.",
            (*_GEN_AI, "error_type"),
            GEN_AI_DURATION_S,
        )
        self.gen_ai_first = HistogramSeries(
            "gen_ai_server_time_to_first_token",
            "Seconds to the first token of a stream.",
            _GEN_AI,
            GEN_AI_FIRST_TOKEN_S,
        )
        self.gen_ai_per_token = HistogramSeries(
            "gen_ai_server_time_per_output_token",
            "Seconds per output token after the first, of streams whose provider counts tokens.",
            _GEN_AI,
            GEN_AI_PER_TOKEN_S,
        )

    def all(self) -> tuple[CounterSeries | HistogramSeries, ...]:
        """All series, in the order of /metrics."""
        return (
            self.requests, self.attempts, self.failures, self.besides, self.tokens,
            self.estimated, self.cost, self.unpriced, self.cache_hits, self.guardrails,
            self.first_token, self.total, self.overhead, self.gen_ai_tokens, self.gen_ai_duration,
            self.gen_ai_first, self.gen_ai_per_token,
        )  # fmt: skip

    def take(self, entry: Entry) -> None:
        """Count a request that is over."""
        names = self.names
        model, target = names.model(entry.model), names.target(entry.target)
        if entry.purpose:
            self.besides.add((entry.purpose, target))
            if entry.usage is not None:
                self._bill(entry, entry.usage, (model, target))
            return
        self.requests.add(
            (model, entry.provider or "", target, entry.outcome, str(entry.status or 499))
        )
        if entry.cache:
            self.cache_hits.add((model, entry.cache))
        for acted in entry.guardrails:
            guardrail, _, action = acted.rpartition("=")
            self.guardrails.add((guardrail, action))
        for attempt in entry.attempts:
            self._attempt(attempt)
        self.total.observe((model,), entry.total_ms * 1e-3)
        self.overhead.observe((), entry.overhead_us * 1e-6)
        if entry.first_token_ms is not None:
            self.first_token.observe((model,), entry.first_token_ms * 1e-3)
        if entry.usage is not None:
            self._bill(entry, entry.usage, (model, target))
        self._gen_ai(entry, model, target)

    def _attempt(self, attempt: AttemptEntry) -> None:
        target = self.names.target(attempt.target)
        self.attempts.add((target,))
        if attempt.failure is not None:
            self.failures.add((target, attempt.failure))

    def _bill(self, entry: Entry, usage: TokenUsage, labels: tuple[str, str]) -> None:
        for line, count in zip(LINES, tokens_by_line(usage), strict=True):
            if count:
                self.tokens.add((labels[1], line), count)
        if entry.usage_from == "estimated":
            self.estimated.add(labels)
        if entry.cost_nusd is None:
            self.unpriced.add(labels)
        else:
            self.cost.add(labels, entry.cost_nusd)

    def _gen_ai(self, entry: Entry, model: str, target: str) -> None:
        names = self.names
        provider = "" if entry.provider is None else names.vendor(entry.provider)
        asked = "" if entry.target is None else names.model_of_target(entry.target)
        labels = (entry.operation, provider, model, asked)
        self.gen_ai_duration.observe((*labels, error_type(entry)), entry.total_ms * 1e-3)
        usage = entry.usage
        if usage is None:
            return
        self.gen_ai_tokens.observe((*labels, "input"), usage.prompt_tokens)
        self.gen_ai_tokens.observe((*labels, "output"), usage.completion_tokens)
        if not entry.stream or entry.first_token_ms is None:
            return
        self.gen_ai_first.observe(labels, entry.first_token_ms * 1e-3)
        after = usage.completion_tokens - 1
        if entry.usage_from == "provider" and entry.outcome == "answered" and after > 0:
            lasted_s = (entry.total_ms - entry.first_token_ms) * 1e-3
            self.gen_ai_per_token.observe(labels, lasted_s / after)


def tokens_by_line(usage: TokenUsage) -> tuple[int, ...]:
    """The token counts in the order of LINES."""
    return (
        usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens,
        usage.cache_write_1h_tokens, usage.input_audio_tokens, usage.output_tokens,
        usage.reasoning_tokens, usage.output_audio_tokens,
    )  # fmt: skip


def error_type(entry: Entry) -> str:
    """OpenTelemetry's `error.type`: "" without an error, else the kind of the last failed attempt,
    else the status."""
    if entry.outcome == "answered":
        return ""
    if entry.outcome in ("cut", "client_gone"):
        return entry.outcome
    failed = [attempt.failure for attempt in entry.attempts if attempt.failure is not None]
    return failed[-1] if failed else str(entry.status)
