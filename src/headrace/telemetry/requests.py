"""What requests experienced, by the server's clock: latencies, sizes and how they ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram

from headrace.telemetry import buckets

FINISHED_REASONS = ("stop", "length", "abort", "error")


@dataclass
class Timeline:
    """One request in the engine, from its arrival at the server; filled in as it goes on.

    Times are seconds of the clock that `RequestMetrics` was given; prefill_s is the engine's own.
    """

    arrival_s: float
    prompt_tokens: int
    max_tokens: int
    first_token_s: float | None = None
    last_token_s: float = 0.0
    generated_tokens: int = 0
    prefill_s: float = 0.0
    ended: bool = False


class RequestMetrics:
    """Histograms and counters of requests, registered under vLLM's names."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        labels: Mapping[str, str],
        max_model_len: int,
        clock: Callable[[], float],
    ) -> None:
        self.clock = clock
        sizes = buckets.token_counts(max_model_len)

        def histogram(name: str, help: str, bounds: tuple[float, ...]) -> Histogram:
            family = Histogram(name, help, list(labels), registry=registry, buckets=bounds)
            return family.labels(**labels)

        self._time_to_first_token = histogram(
            "vllm:time_to_first_token_seconds",
            "From a request's arrival to its first token.",
            buckets.TIME_TO_FIRST_TOKEN_S,
        )
        self._inter_token = histogram(
            "vllm:inter_token_latency_seconds",
            "Between a request's tokens.",
            buckets.INTER_TOKEN_S,
        )
        self._per_output_token = histogram(
            "vllm:request_time_per_output_token_seconds",
            "Mean time per token after the first, per request.",
            buckets.INTER_TOKEN_S,
        )
        self._e2e = histogram(
            "vllm:e2e_request_latency_seconds",
            "From a request's arrival to its end.",
            buckets.REQUEST_S,
        )
        self._queue = histogram(
            "vllm:request_queue_time_seconds", "Waiting in the engine's queue.", buckets.REQUEST_S
        )
        self._prefill = histogram(
            "vllm:request_prefill_time_seconds",
            "From being scheduled to the first token.",
            buckets.REQUEST_S,
        )
        self._decode = histogram(
            "vllm:request_decode_time_seconds",
            "From the first token to the last.",
            buckets.REQUEST_S,
        )
        self._inference = histogram(
            "vllm:request_inference_time_seconds",
            "From being scheduled to the last token.",
            buckets.REQUEST_S,
        )
        self._prompt_tokens = histogram(
            "vllm:request_prompt_tokens", "Prompt tokens per request.", sizes
        )
        self._generation_tokens = histogram(
            "vllm:request_generation_tokens", "Generated tokens per request.", sizes
        )
        self._max_tokens = histogram(
            "vllm:request_params_max_tokens", "Most new tokens a request allowed.", sizes
        )
        success = Counter(
            "vllm:request_success",
            "Requests that ended, by reason (abort: cancelled; error: failed).",
            [*labels, "finished_reason"],
            registry=registry,
        )
        self._ended = {
            reason: success.labels(**labels, finished_reason=reason) for reason in FINISHED_REASONS
        }

    def arrived(self, arrival_s: float, prompt_tokens: int, max_tokens: int) -> Timeline:
        """A request is about to be sent to the engine; `arrival_s` is when the server got it."""
        return Timeline(arrival_s, prompt_tokens, max_tokens)

    def tokens(
        self, timeline: Timeline, count: int, *, queue_s: float = 0.0, prefill_s: float = 0.0
    ) -> None:
        """`count` new tokens came. The two times are looked at with the first token only."""
        if count == 0:
            return
        now = self.clock()
        if timeline.first_token_s is None:
            timeline.first_token_s = now
            self._time_to_first_token.observe(now - timeline.arrival_s)
            self._queue.observe(queue_s)
            self._prefill.observe(prefill_s)
            timeline.prefill_s = prefill_s
        else:
            self._inter_token.observe(now - timeline.last_token_s)
        timeline.last_token_s = now
        timeline.generated_tokens += count

    def ended(self, timeline: Timeline, reason: str) -> None:
        """The request is over; a second call for the same one does nothing."""
        if timeline.ended:
            return
        timeline.ended = True
        self._ended[reason].inc()
        self._prompt_tokens.observe(timeline.prompt_tokens)
        self._generation_tokens.observe(timeline.generated_tokens)
        self._max_tokens.observe(timeline.max_tokens)
        self._e2e.observe(self.clock() - timeline.arrival_s)
        if timeline.first_token_s is None:
            return
        decode_s = timeline.last_token_s - timeline.first_token_s
        self._decode.observe(decode_s)
        self._inference.observe(timeline.prefill_s + decode_s)
        if timeline.generated_tokens > 1:
            self._per_output_token.observe(decode_s / (timeline.generated_tokens - 1))
