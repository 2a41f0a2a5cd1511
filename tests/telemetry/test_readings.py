"""What texts of /metrics tell, in names that both the bench and the planner use."""

from __future__ import annotations

import pytest

from headrace.telemetry.readings import growth, read_texts, values_of

S = 10**9


def test_readings_come_in_order_of_time_and_foreign_texts_are_counted() -> None:
    found, unread = read_texts(
        [(2 * S, "vllm:num_requests_running 3\n"), (S, ""), (0, "<html>no</html>")]
    )
    assert unread == 1 and [one.at_s for one in found] == [1.0, 2.0]
    assert found[0].values == {} and found[1].values == {"running": 3.0}


def test_the_same_counter_under_two_names_counts_once() -> None:
    text = "vllm:prefix_cache_hits_total 7\nvllm:gpu_prefix_cache_hits_total 7\n"
    assert read_texts([(0, text)])[0][0].values == {"hits": 7.0}
    old = "vllm:gpu_cache_usage_perc 0.25\n"
    assert read_texts([(0, old)])[0][0].values == {"kv": 0.25}


def test_engines_add_up_and_shares_do_not() -> None:
    text = "".join(
        f'{name}{{engine="{engine}"}} {value}\n'
        for name, value in (("vllm:num_requests_running", 4), ("vllm:kv_cache_usage_perc", 0.6))
        for engine in (0, 1)
    )
    (one,), _ = read_texts([(0, text)])
    assert one.engines == 2 and one.values == {"running": 8.0, "kv": pytest.approx(0.6)}


def test_a_counter_that_falls_began_anew() -> None:
    texts = [(at * S, f"vllm:num_preemptions_total {n}\n") for at, n in enumerate((5, 9, 2, 3))]
    readings, _ = read_texts(texts)
    assert growth(readings, "preemptions") == 4 + 2 + 1
    assert growth(readings[:1], "preemptions") is None
    assert values_of(readings, "preemptions") == [5, 9, 2, 3]
    with pytest.raises(ValueError, match="not a counter"):
        growth(readings, "running")


def test_values_that_are_no_numbers_are_left_out() -> None:
    assert read_texts([(0, "vllm:num_requests_running NaN\n")])[0][0].values == {}
