"""History from the server's own metrics."""

from __future__ import annotations

import pytest

from headrace.bench.concurrency import Window
from headrace.bench.server_figures import server_figures
from headrace.bench.server_history import server_history
from tests.bench.report.synthetic import METRICS, S

BASE = {
    "running": 3,
    "waiting": 1,
    "kv": 0.5,
    "prompt": 1000,
    "hits": 100,
    "preempted": 2,
    "output": 50,
    "bytes": 1e9,
    "ops": 1e10,
    "busy": 1.0,
}


def reading(second: float, **changed: float) -> tuple[int, str]:
    return round(second * S), METRICS.format(**{**BASE, **changed})


def test_counters_become_rates_and_shares() -> None:
    later = reading(
        2, prompt=2000, hits=350, output=250, bytes=22e9, ops=120e9, busy=2, preempted=5
    )
    got = server_history([later, reading(0)])
    assert got.readings == 2 and got.unread == 0
    assert got.kv_use == [(0, 0.5), (2, 0.5)] and got.running[-1] == (2, 3)
    assert got.prefix_hits == [(2, 0.25)] and got.preemptions == [(2, 3)]
    assert got.output_tokens_per_s == [(2, 100)] and got.prompt_tokens_per_s == [(2, 500)]
    # 21 GB in one second of steps, of 21 GB/s; 110 G operations of 220 G.
    assert got.mbu == [(2, pytest.approx(1))] and got.mfu == [(2, pytest.approx(0.5))]
    assert got.roofline[0].ops_per_s == pytest.approx(110e9)
    assert got.roofline[0].intensity == pytest.approx(110 / 21)
    assert (got.read_limit, got.compute_limit) == (21e9, 2.2e11)


def test_operations_of_attention_have_their_own_limit() -> None:
    def text(operations: int, attention: int, busy: int) -> str:
        return (
            f"headrace:step_operations_total {operations}\n"
            f"headrace:step_attention_operations_total {attention}\n"
            f"headrace:step_seconds_sum {busy}\n"
            "headrace:compute_limit_operations_per_second 100\n"
            "headrace:attention_limit_operations_per_second 50\n"
        )

    texts = [(1 * S, text(10, 5, 1)), (3 * S, text(70, 25, 3))]
    # 40 operations of products take 0.4 s, 20 of attention as long, of 2 s.
    assert server_history(texts).mfu == [(3, pytest.approx(0.4))]
    figures = server_figures(texts, Window(1 * S, 3 * S))
    assert figures is not None and figures.mfu == pytest.approx(0.4)


def test_a_server_that_began_anew_counts_from_nothing() -> None:
    got = server_history([reading(0, output=500), reading(1, output=30)])
    assert got.output_tokens_per_s == [(1, 30)]


def test_what_is_not_prometheus_is_counted() -> None:
    got = server_history([(0, "<html>no</html>"), (1, ""), reading(1)])
    assert got.unread == 1 and got.readings == 2 and got.kv_use == [(1, 0.5)]
    assert server_history([]).readings == 0


def test_engines_add_up_and_shares_do_not() -> None:
    text = "".join(
        f'{name}{{engine="{engine}"}} {value}\n'
        for name, value in (("vllm:num_requests_running", 4), ("vllm:kv_cache_usage_perc", 0.6))
        for engine in (0, 1)
    )
    got = server_history([(0, text)])
    assert got.running == [(0, 8)] and got.kv_use == [(0, pytest.approx(0.6))]


def test_values_that_are_no_numbers_are_left_out() -> None:
    assert server_history([(0, "vllm:num_requests_running NaN\n")]).running == []
