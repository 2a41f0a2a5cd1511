"""An engine's report as metrics: names, labels and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headrace.engine.messages import EngineInfo, Stats
from headrace.telemetry.buckets import ITERATION_TOKENS, STEP_S
from headrace.telemetry.engine_collector import EngineCollector
from headrace.telemetry.families import Families
from headrace.telemetry.server_collector import RecoveryMetrics, ServerCollector
from tests.server.mock_engine import INFO

LABELS = {"model_name": "m", "engine": "0"}


def registry_of(
    stats: Stats, *, alive: bool = True, queued: int | None = None, info: EngineInfo = INFO
) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(
        EngineCollector(
            labels=LABELS,
            facts=lambda: info,
            counts=lambda: stats,
            alive=lambda: alive,
            prefix_caching=True,
            version="1",
            started_s=5.0,
            queued=None if queued is None else lambda: queued,
        )
    )
    return registry


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, LABELS | labels)


STATS = Stats(
    num_running=3,
    num_waiting=4,
    num_deferred=2,
    num_preempted=1,
    blocks_total=10,
    blocks_owned=4,
    prompt_tokens=100,
    prefix_hits_tokens=30,
    num_preemptions=5,
    preemption_reasons={"blocks": 5},
    timeouts=2,
    step_seconds=[1, 2] + [0] * (len(STEP_S) - 2) + [3],
    busy_s=200.0,
    iteration_tokens=[4] + [0] * (len(ITERATION_TOKENS) - 1) + [2],
    computed_tokens=40_004,
    certain_tokens=7,
    spec_drafts=10,
    spec_draft_tokens=30,
    spec_accepted_tokens=21,
    spec_accepted_by_position={0: 9, 1: 12},
)


def test_drafts_are_counted_under_vllm_s_names() -> None:
    registry = registry_of(STATS)
    assert value(registry, "vllm:spec_decode_num_drafts_total") == 10
    assert value(registry, "vllm:spec_decode_num_draft_tokens_total") == 30
    assert value(registry, "vllm:spec_decode_num_accepted_tokens_total") == 21
    by_place = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    assert [value(registry, by_place, position=place) for place in "01"] == [9, 12]
    assert value(registry, "headrace:certain_tokens_total") == 7


def test_what_waits_is_what_the_server_accepted_and_what_was_preempted() -> None:
    registry = registry_of(STATS, queued=6)
    assert value(registry, "vllm:num_requests_waiting") == 7
    assert value(registry, "vllm:num_requests_waiting_by_reason", reason="deferred") == 2
    assert value(registry, "vllm:num_requests_waiting_by_reason", reason="capacity") == 5


def test_without_a_server_the_engines_word_counts() -> None:
    registry = registry_of(STATS)
    assert value(registry, "vllm:num_requests_waiting") == 4
    assert value(registry, "vllm:num_requests_waiting_by_reason", reason="capacity") == 2


def test_reasons_add_up_where_the_report_is_older_than_the_servers_count() -> None:
    registry = registry_of(msgspec.structs.replace(STATS, num_preempted=0), queued=1)
    name = "vllm:num_requests_waiting_by_reason"
    assert value(registry, name, reason="deferred") == 1
    assert value(registry, name, reason="capacity") == 0


def test_a_dead_engine_runs_nothing_and_its_totals_stay() -> None:
    registry = registry_of(STATS, alive=False, queued=0)
    assert value(registry, "vllm:num_requests_running") == 0
    assert value(registry, "vllm:num_requests_waiting") == 0
    assert value(registry, "vllm:kv_cache_usage_perc") == 0
    assert value(registry, "headrace:engine_up") == 0
    assert value(registry, "headrace:request_timeouts_total") == 2


def test_sources_and_reasons() -> None:
    registry = registry_of(STATS)
    name = "vllm:prompt_tokens_by_source_total"
    assert value(registry, name, source="local_compute") == 70
    assert value(registry, name, source="local_cache_hit") == 30
    assert value(registry, name, source="external_kv_transfer") == 0
    assert value(registry, "vllm:prompt_tokens_cached_total") == 30
    assert value(registry, "headrace:preemptions_total", reason="blocks") == 5
    assert value(registry, "headrace:preemptions_total", reason="priority") == 0


def test_aliases_say_the_same() -> None:
    registry = registry_of(STATS)
    for new, former in (
        ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
    ):
        assert value(registry, f"vllm:{new}") == value(registry, f"vllm:{former}") is not None


def test_histograms_of_steps() -> None:
    registry = registry_of(STATS)
    assert value(registry, "headrace:step_seconds_bucket", le="0.0005") == 1
    assert value(registry, "headrace:step_seconds_bucket", le="0.001") == 3
    assert value(registry, "headrace:step_seconds_bucket", le="60.0") == 3
    assert value(registry, "headrace:step_seconds_bucket", le="+Inf") == 6
    assert value(registry, "headrace:step_seconds_count") == 6
    assert value(registry, "headrace:step_seconds_sum") == 200.0
    assert value(registry, "vllm:iteration_tokens_total_bucket", le="1.0") == 4
    assert value(registry, "vllm:iteration_tokens_total_bucket", le="16384.0") == 4
    assert value(registry, "vllm:iteration_tokens_total_count") == 6
    assert value(registry, "vllm:iteration_tokens_total_sum") == 40_004


def test_an_engine_that_has_done_nothing_has_empty_histograms() -> None:
    registry = registry_of(Stats())
    assert value(registry, "headrace:step_seconds_count") == 0
    assert value(registry, "vllm:iteration_tokens_total_bucket", le="+Inf") == 0


def test_counts_that_do_not_fit_the_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="2 counts for 3 bounds"):
        Families({}).histogram("x", "x", (1, 2, 3), [1, 2], 0.0)


def test_the_cache_of_experts() -> None:
    """Absent where all experts are packed at load; counters stay when the engine has ended."""
    stats = Stats(
        expert_cache_hits=7,
        expert_cache_misses=5,
        expert_cache_read_bytes=900,
        expert_cache_held_bytes=30,
    )
    info = msgspec.structs.replace(INFO, expert_cache_bytes=40)
    for alive, held in ((True, 30), (False, 0)):
        registry = registry_of(stats, info=info, alive=alive)
        assert value(registry, "headrace:expert_cache_bytes", state="held") == held
        assert value(registry, "headrace:expert_cache_bytes", state="limit") == 40
        assert value(registry, "headrace:expert_cache_hits_total") == 7
        assert value(registry, "headrace:expert_cache_misses_total") == 5
        assert value(registry, "headrace:expert_cache_read_bytes_total") == 900
    assert b"expert_cache" not in generate_latest(registry_of(stats))


def test_every_name_is_there_once() -> None:
    text = generate_latest(registry_of(STATS)).decode()
    names = [family.name for family in text_string_to_metric_families(text)]
    assert len(names) == len(set(names))


class Queue:
    max_requests = 8
    max_tokens = 1000
    num_queued = 3
    num_queued_tokens = 70
    num_queued_keys = 2
    refused: ClassVar[Mapping[str, int]] = {"tokens": 2}


def test_the_queue() -> None:
    registry = CollectorRegistry()
    registry.register(ServerCollector(Queue(), lambda: True, lambda: 5))
    for name, expected in {
        "ready": 1,
        "admission_queued_requests": 3,
        "admission_queued_tokens": 70,
        "admission_queued_keys": 2,
        "admission_max_queued_requests": 8,
        "admission_max_queued_tokens": 1000,
    }.items():
        assert registry.get_sample_value(f"headrace:{name}") == expected, name
    refused = "headrace:admission_refused_total"
    assert registry.get_sample_value(refused, {"reason": "tokens"}) == 2
    assert registry.get_sample_value(refused, {"reason": "requests"}) == 0


def test_recoveries() -> None:
    registry = CollectorRegistry()
    recovery = RecoveryMetrics(registry)
    recovery.restarted("died")
    recovery.recovered(1.5)
    name = "headrace:engine_restarts_total"
    assert registry.get_sample_value(name, {"reason": "died"}) == 1
    assert registry.get_sample_value(name, {"reason": "stalled"}) == 0
    assert registry.get_sample_value("headrace:engine_recovery_seconds_sum") == 1.5
