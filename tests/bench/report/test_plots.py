"""What plots draw, looked up in their markup."""

from __future__ import annotations

import re

import numpy as np
import pytest

from headrace.bench.load_point import LoadPoint, load_point
from headrace.bench.pooled import PooledSamples, one_each
from headrace.bench.record import Failure
from headrace.bench.report.plots.cdf import Curve, cdf
from headrace.bench.report.plots.heat import heat_map
from headrace.bench.report.plots.load_curve import knee, load_curve
from headrace.bench.report.plots.over_time import Line, over_time, per_second
from headrace.bench.report.plots.roofline_path import roofed, roofline_path
from headrace.bench.report.plots.timeline import close_up, timeline
from headrace.bench.server_history import Stretch
from headrace.bench.statistics import distribution
from headrace.bench.summary import summarize
from headrace.page.plots.frame import Key, Plot, beyond, within
from tests.bench.report.synthetic import simulated
from tests.bench.streams import run, steady, stream

BLUE = Key("one", "c1")


def hovers(plot: Plot | None) -> list[str]:
    assert plot is not None
    return re.findall("<title>(.*?)</title>", plot.svg)


def test_a_distribution_rises_from_its_least_to_its_most() -> None:
    plot = cdf("TTFT", [Curve(BLUE, one_each([10.0, 20.0, 30.0]))], limit_ms=25)
    assert plot is not None
    (d,) = re.findall('d="M([^"]*)" class="curve"', plot.svg)
    places = [tuple(map(float, one.split())) for one in d.split("L")]
    assert places == sorted(places, key=lambda place: (place[0], -place[1]))
    assert "SLO 25 ms" in plot.svg
    assert hovers(plot) == ["one: 3 samples, p50 20 ms, p90 28 ms, p99 29.8 ms, most 30 ms"]
    assert cdf("TTFT", [Curve(BLUE, one_each([]))]) is None


def test_a_distribution_is_of_weights_where_there_are_some() -> None:
    heavy = PooledSamples(np.array([10.0, 30.0]), np.arange(2), 2, np.array([1.0, 9.0]), "nearest")
    plot = cdf("TPOT", [Curve(BLUE, heavy)])
    assert hovers(plot) == ["one: 2 samples, p50 30 ms, p90 30 ms, p99 30 ms, most 30 ms"]
    assert cdf("TPOT", [Curve(BLUE, None)]) is None


def test_a_limit_far_away_is_told_and_not_drawn() -> None:
    plot = cdf("TTFT", [Curve(BLUE, one_each([10.0, 20.0]))], limit_ms=500)
    assert plot is not None and "SLO" not in plot.svg
    assert plot.caption == "SLO 500 ms lies outside the plot."
    assert within(500, [10, 300]) == 500 and beyond(None, [1], "x") == ""


def test_times_of_nothing_have_a_place_on_a_logarithmic_axis() -> None:
    plot = cdf("gaps", [Curve(BLUE, one_each([0.0] * 50 + [10.0, 400.0]))])
    assert plot is not None and "gaps, logarithmic" in plot.svg
    assert plot.caption == "Values below 50 µs are drawn at 50 µs."
    near = cdf("gaps", [Curve(BLUE, one_each([0.0, 0.5]))])
    assert near is not None and near.caption == ""


def test_rates_are_counted_by_slices() -> None:
    at = np.asarray([10.1, 10.2, 11.5, 13.9])
    assert per_second(at, np.ones(4), (10, 14)) == [(0.5, 2), (1.5, 1), (2.5, 0), (3.5, 1)]
    assert per_second(at, np.ones(4) * 3, (10, 14), slices=2) == [(1, 4.5), (3, 1.5)]
    assert over_time("x", [Line(BLUE, [(0, 1)])], span_s=(0, 1), y_title="y") is None


def test_the_heat_map_tells_the_figures_of_each_slice() -> None:
    at = np.asarray([0.5, 0.6, 119.5])
    plot = heat_map(at, np.asarray([10.0, 20.0, 900.0]), (0, 120))
    assert hovers(plot) == [
        "0–1 s: 2 gaps, p50 15 ms, p99 19.9 ms, most 20 ms",
        "119–120 s: 1 gaps, p50 900 ms, p99 900 ms, most 900 ms",
    ]
    assert heat_map(np.empty(0), np.empty(0), (0, 1)) is None
    assert heat_map(np.zeros(2), np.zeros(2), (0, 0)) is not None, "all in one read"


def test_a_row_of_the_timeline_says_what_happened() -> None:
    late = steady(3, 100, 50, start_ms=40, intended_ms=0, index=7)
    cut = stream((10, "text", "a"), end_ms=20, failure=Failure("truncated", "gone"), index=8)
    plot = timeline([cut, late], (0, 1))
    told = hovers(plot)
    assert told[0].startswith("request 7, sent 40 ms late, TTFT 100 ms, ended after 200 ms")
    assert told[1].endswith("1 chunks, truncated: gone")
    assert plot is not None and plot.svg.count('class="cross"') == 1
    assert timeline([], (0, 1)) is None


def test_the_close_up_is_around_the_longest_stall() -> None:
    records = [steady(3, 100, 50, start_ms=at * 10, index=at) for at in range(300)]
    records[200] = steady(3, 100, 700, start_ms=2000, index=200)
    plot = close_up(records)
    assert plot is not None and "(request 200)" in plot.caption
    told = hovers(plot)
    assert len(told) == 48 and any(one.startswith("request 200,") for one in told)
    assert close_up(records[:50]) is None


def point(rate: float, latency: float) -> LoadPoint:
    spread = distribution([latency] * 5)
    return LoadPoint(str(rate), rate, rate, rate * 10, spread, spread, spread, 1.0, None, None)


def test_the_knee_has_the_most_throughput_for_its_latency() -> None:
    points = [point(1, 100), point(5, 110), point(9, 150), point(10, 900)]
    found = knee(points)
    assert found is not None and found.rps == 9
    assert knee(points[:2]) is None
    plot = load_curve("TTFT", points, lambda of: of.ttft, limit_ms=500)
    assert plot is not None and "knee 9.00/s" in plot.svg and "SLO 500 ms" in plot.svg
    assert load_curve("TTFT", points[:1], lambda of: of.ttft) is None


def test_runs_of_one_load_are_joined_at_their_median() -> None:
    once = load_curve("TTFT", [point(1, 100), point(5, 200)], lambda of: of.ttft)
    thrice = [point(1, 100), point(5, 150), point(5, 200), point(5, 250)]
    plot = load_curve("TTFT", thrice, lambda of: of.ttft)
    assert once is not None and plot is not None
    assert "the same load at their median" in plot.caption
    assert "one load" not in once.caption
    lines = re.findall(r'd="(M[^"]*)" class="curve"', plot.svg)
    assert [line.count("L") for line in lines] == [1, 1, 1]
    assert len(hovers(plot)) == 3 * len(thrice)


def test_a_point_is_of_the_intended_clock() -> None:
    made = run(steady(3, 100, 50, start_ms=400, intended_ms=0))
    got = load_point("a", summarize(made))
    assert got is not None and got.ttft is not None and got.ttft.p50 == pytest.approx(500)
    assert load_point("a", summarize(run())) is None


def test_the_roof_bends_at_the_ridge() -> None:
    low, high = Stretch(1, 2, 30e9), Stretch(2, 50, 100e9)
    assert roofed(low, 20e9, 200e9) == pytest.approx(0.75), "of 40 G operations by bandwidth"
    assert roofed(high, 20e9, 200e9) == pytest.approx(0.5)
    plot = roofline_path([low, high], bytes_per_s=20e9, ops_per_s=200e9)
    assert plot is not None and "ridge at 10.0" in plot.caption
    assert any("75 % of the roof" in one for one in hovers(plot))
    assert roofline_path([], bytes_per_s=1, ops_per_s=1) is None


def test_the_simulated_run_queues_stalls_and_fails() -> None:
    """What the pages are looked at with must have what they are to show."""
    summary = summarize(simulated(requests=300, rate=26, slots=24, metrics=False))
    wanted, sent = (
        side["ttft"].distribution for side in (summary.from_intended, summary.from_sent)
    )
    assert wanted.p99 > 3 * sent.p99
    assert summary.longest_stall is not None and summary.longest_stall.gap_ms > 500
    assert len(summary.requests.errors) == 3
