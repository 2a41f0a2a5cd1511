"""Request histograms: what is observed when, by a clock that goes when told."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from headrace.telemetry.buckets import token_counts
from headrace.telemetry.call import CallRecord, as_current
from headrace.telemetry.requests import RequestMetrics


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry, clock: Clock) -> RequestMetrics:
    return RequestMetrics(registry, labels={"model_name": "m"}, max_model_len=100, clock=clock)


def _value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    value = registry.get_sample_value(f"vllm:{name}", {"model_name": "m", **labels})
    assert value is not None, name
    return value


def test_a_request_that_runs_to_its_end(
    registry: CollectorRegistry, metrics: RequestMetrics, clock: Clock
) -> None:
    timeline = metrics.arrived(arrival_s=9.0, prompt_tokens=20, max_tokens=50)
    metrics.tokens(timeline, 0)
    clock.now = 12.0
    metrics.tokens(timeline, 1, queue_s=0.5, prefill_s=1.5)
    clock.now = 12.25
    metrics.tokens(timeline, 3)
    clock.now = 13.0
    metrics.tokens(timeline, 1)
    clock.now = 13.5
    metrics.ended(timeline, "stop")
    metrics.ended(timeline, "abort")
    for name, total in {
        "time_to_first_token_seconds_sum": 3.0,
        "inter_token_latency_seconds_sum": 1.0,
        "inter_token_latency_seconds_count": 2,
        "request_time_per_output_token_seconds_sum": 0.25,
        "e2e_request_latency_seconds_sum": 4.5,
        "request_queue_time_seconds_sum": 0.5,
        "request_prefill_time_seconds_sum": 1.5,
        "request_decode_time_seconds_sum": 1.0,
        "request_inference_time_seconds_sum": 2.5,
        "request_prompt_tokens_sum": 20,
        "request_generation_tokens_sum": 5,
        "request_params_max_tokens_sum": 50,
        "e2e_request_latency_seconds_count": 1,
    }.items():
        assert _value(registry, name) == total, name
    assert _value(registry, "request_success_total", finished_reason="stop") == 1
    assert _value(registry, "request_success_total", finished_reason="abort") == 0


def test_a_request_cancelled_in_the_queue(
    registry: CollectorRegistry, metrics: RequestMetrics, clock: Clock
) -> None:
    timeline = metrics.arrived(arrival_s=9.0, prompt_tokens=20, max_tokens=50)
    clock.now = 11.0
    metrics.ended(timeline, "abort")
    assert _value(registry, "request_success_total", finished_reason="abort") == 1
    assert _value(registry, "e2e_request_latency_seconds_sum") == 2.0
    assert _value(registry, "request_generation_tokens_sum") == 0
    for name in ("time_to_first_token_seconds", "request_decode_time_seconds"):
        assert _value(registry, f"{name}_count") == 0


def test_a_request_of_one_token_has_no_time_per_token(
    registry: CollectorRegistry, metrics: RequestMetrics
) -> None:
    timeline = metrics.arrived(arrival_s=9.0, prompt_tokens=1, max_tokens=1)
    metrics.tokens(timeline, 1)
    metrics.ended(timeline, "length")
    assert _value(registry, "request_time_per_output_token_seconds_count") == 0
    assert _value(registry, "request_decode_time_seconds_count") == 1


@pytest.mark.parametrize(
    ("limit", "bounds"),
    [(1, [1]), (4, [1, 2]), (10, [1, 2, 5, 10]), (300, [1, 2, 5, 10, 20, 50, 100, 200])],
)
def test_token_buckets(limit: int, bounds: list[int]) -> None:
    assert list(token_counts(limit)) == bounds


def test_choices_are_observed_once_per_prompt(
    registry: CollectorRegistry, metrics: RequestMetrics
) -> None:
    record = CallRecord("id", "/v1/completions", 9.0)
    with as_current(record):
        for prompt, tokens in ((0, 3), (0, 5), (1, 2), (1, 1)):
            timeline = metrics.arrived(9.0, 10, 50, prompt_index=prompt, n=2)
            metrics.tokens(timeline, tokens, cached_tokens=4, num_preemptions=1)
            metrics.ended(timeline, "timeout")
    metrics.call_ended(record)
    for name, total in {
        "request_params_n_count": 2,
        "request_params_n_sum": 4,
        "request_max_num_generation_tokens_sum": 5 + 2,
        "request_generation_tokens_sum": 11,
        "request_prefill_kv_computed_tokens_sum": 4 * 6,
        "request_num_preemptions_sum": 4,
    }.items():
        assert _value(registry, name) == total, name
    assert _value(registry, "request_success_total", finished_reason="timeout") == 4


def test_the_queue_time_is_of_the_moment_it_starts(
    registry: CollectorRegistry, metrics: RequestMetrics
) -> None:
    timeline = metrics.arrived(arrival_s=9.0, prompt_tokens=1, max_tokens=1)
    metrics.started(timeline, 0.75)
    metrics.tokens(timeline, 1, queue_s=0.75, prefill_s=0.5)
    assert _value(registry, "request_queue_time_seconds_count") == 1
    assert _value(registry, "request_queue_time_seconds_sum") == 0.75


def test_text_is_kept_only_where_it_is_asked_for(metrics: RequestMetrics) -> None:
    for keep in (True, False):
        with as_current(CallRecord("id", "/x", 9.0, keep_text=keep)):
            timeline = metrics.arrived(9.0, 1, 1)
            metrics.tokens(timeline, 1, text="said")
            assert timeline.text == (["said"] if keep else [])


def test_the_former_name_has_the_same_values(
    registry: CollectorRegistry, metrics: RequestMetrics, clock: Clock
) -> None:
    timeline = metrics.arrived(9.0, 1, 5)
    for _ in range(3):
        clock.now += 0.25
        metrics.tokens(timeline, 1)
    for part in ("sum", "count"):
        former = _value(registry, f"time_per_output_token_seconds_{part}")
        assert former == _value(registry, f"inter_token_latency_seconds_{part}") > 0
