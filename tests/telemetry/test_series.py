"""Counters and histograms kept without a library, and what they are for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from headrace.telemetry.series import CounterSeries, HistogramSeries
from headrace.telemetry.series_collector import SeriesCollector


def told(*series: CounterSeries | HistogramSeries) -> dict[str, float]:
    """Samples by name and last label's value."""
    registry = CollectorRegistry()
    registry.register(SeriesCollector(series))
    return {
        " ".join([one.name, *one.labels.values()]): one.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for one in family.samples
    }


def test_counters_are_whole_numbers_of_any_size() -> None:
    series = CounterSeries("spent", "Spent.", ("by",))
    series.add(("a",), 2**52)
    for _ in range(3):
        series.add(("a",))
    series.add(("b\n",), 2**70)
    assert series.values[("b\n",)] == 2**70
    assert told(series) == {"spent_total a": 2**52 + 3, "spent_total b\n": float(2**70)}


def test_a_bound_is_inside_its_bucket() -> None:
    series = HistogramSeries("lasted", "Lasted.", (), (0.5, 1.0))
    for value in (0.1, 0.5, 0.6, 1.0, 7.0):
        series.observe((), value)
    assert told(series) == {
        "lasted_bucket 0.5": 2,
        "lasted_bucket 1.0": 4,
        "lasted_bucket +Inf": 5,
        "lasted_count": 5,
        "lasted_sum": 9.2,
    }


def test_series_without_values_are_families_without_samples() -> None:
    assert told(CounterSeries("c", "C.", ("x",)), HistogramSeries("h", "H.", ("x",), (1.0,))) == {}
