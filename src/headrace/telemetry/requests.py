"""What requests experienced, by the server's clock: latencies, sizes and how they ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

from headrace.telemetry import buckets
from headrace.telemetry.call import CallRecord, Timeline, current_call
from headrace.telemetry.families import FormerName

__all__ = ["FINISHED_REASONS", "RequestMetrics", "Timeline"]

FINISHED_REASONS = ("stop", "length", "timeout", "abort", "error")


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

        def histogram(
            name: str, help: str, bounds: tuple[float, ...], former: str | None = None
        ) -> Histogram:
            family = Histogram(name, help, list(labels), registry=registry, buckets=bounds)
            if former is not None:
                registry.register(FormerName(family, name, former))
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
            former="vllm:time_per_output_token_seconds",
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
            "vllm:request_queue_time_seconds",
            "Time waiting in the engine's queue.",
            buckets.REQUEST_S,
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
            "vllm:request_params_max_tokens", "Maximum new tokens that a request allowed.", sizes
        )
        self._computed_tokens = histogram(
            "vllm:request_prefill_kv_computed_tokens",
            "Prompt tokens computed per request: those that were not cached.",
            sizes,
        )
        self._preemptions = histogram(
            "vllm:request_num_preemptions", "Preemptions per request.", buckets.PREEMPTIONS
        )
        self._choices = histogram(
            "vllm:request_params_n", "Choices requested, per prompt.", buckets.CHOICES
        )
        self._longest_choice = histogram(
            "vllm:request_max_num_generation_tokens",
            "Generated tokens of the longest choice, per prompt.",
            sizes,
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

    def arrived(
        self,
        arrival_s: float,
        prompt_tokens: int,
        max_tokens: int,
        *,
        request_id: str = "",
        prompt_token_ids: Sequence[int] = (),
        prompt_index: int = 0,
        n: int = 1,
        temperature: float | None = None,
        top_p: float | None = None,
    ) -> Timeline:
        """A request is about to be sent to the engine; `arrival_s` is when the server got it."""
        timeline = Timeline(
            arrival_s,
            prompt_tokens,
            max_tokens,
            request_id=request_id,
            prompt_token_ids=prompt_token_ids,
            prompt_index=prompt_index,
            n=n,
            temperature=temperature,
            top_p=top_p,
        )
        record = current_call()
        if record is not None:
            record.timelines.append(timeline)
            timeline.keep_text = record.keep_text
        return timeline

    def started(self, timeline: Timeline, queue_s: float) -> None:
        """The request left the engine's queue, after `queue_s`."""
        if timeline.started_s is None:
            timeline.started_s = self.clock()
            timeline.queue_s = queue_s
            self._queue.observe(queue_s)

    def tokens(
        self,
        timeline: Timeline,
        count: int,
        *,
        queue_s: float = 0.0,
        prefill_s: float = 0.0,
        cached_tokens: int = 0,
        num_preemptions: int = 0,
        text: str = "",
    ) -> None:
        """`count` new tokens came. The two times are looked at with the first token only."""
        if num_preemptions > timeline.num_preemptions:
            timeline.num_preemptions = num_preemptions
        if cached_tokens > timeline.cached_tokens:
            timeline.cached_tokens = cached_tokens
        if timeline.keep_text and text:
            timeline.text.append(text)
        if count == 0:
            return
        now = self.clock()
        if timeline.first_token_s is None:
            self.started(timeline, queue_s)
            timeline.first_token_s = now
            timeline.prefill_s = prefill_s
            self._time_to_first_token.observe(now - timeline.arrival_s)
            self._prefill.observe(prefill_s)
        else:
            self._inter_token.observe(now - timeline.last_token_s)
        timeline.last_token_s = now
        timeline.generated_tokens += count

    def ended(self, timeline: Timeline, reason: str) -> None:
        """The request is over; a second call for the same one does nothing."""
        if timeline.reason is not None:
            return
        timeline.reason = reason
        timeline.ended_s = self.clock()
        self._ended[reason].inc()
        self._prompt_tokens.observe(timeline.prompt_tokens)
        self._generation_tokens.observe(timeline.generated_tokens)
        self._max_tokens.observe(timeline.max_tokens)
        self._preemptions.observe(timeline.num_preemptions)
        self._e2e.observe(timeline.ended_s - timeline.arrival_s)
        if timeline.first_token_s is None:
            return
        self._computed_tokens.observe(timeline.prompt_tokens - timeline.cached_tokens)
        decode_s = timeline.last_token_s - timeline.first_token_s
        self._decode.observe(decode_s)
        self._inference.observe(timeline.prefill_s + decode_s)
        if timeline.generated_tokens > 1:
            self._per_output_token.observe(decode_s / (timeline.generated_tokens - 1))

    def call_ended(self, record: CallRecord) -> None:
        """All requests of a call are over: what is observed once per prompt, whatever its n."""
        for choices in record.prompts.values():
            self._choices.observe(choices[0].n)
            self._longest_choice.observe(max(choice.generated_tokens for choice in choices))
