"""Tables and the plot of several loads."""

from __future__ import annotations

import dataclasses

import msgspec

from headrace.bench.load_point import LoadPoint
from headrace.bench.report.load_sheets import loads, search_steps
from headrace.bench.report.plots.good_share import good_share
from headrace.bench.report.plots.load_curve import load_curve
from headrace.bench.search_result import SearchResult, Share, Step
from headrace.bench.statistics import distribution


def point(rate: float, latency: float, in_flight: float, good: int | None = None) -> LoadPoint:
    spread = distribution([latency] * 5)
    return LoadPoint(
        name=f"{rate:g}/s",
        offered_per_s=rate,
        rps=rate,
        tps_system=rate * 10,
        ttft=spread,
        tpot=None,
        e2e=spread,
        in_flight=in_flight,
        goodput_fraction=None if good is None else good / 100,
        met=None,
        good=good,
        judged=100 if good is not None else 0,
    )


POINTS = [point(1, 100, 1.0, 100), point(8, 110, 9, 96), point(9, 400, 20, 40)]


def test_a_row_for_each_load() -> None:
    sheet = loads(POINTS)
    assert sheet.columns[-2:] == ("batching", "good")
    assert [row[0].text for row in sheet.rows] == ["1/s", "8/s, the knee", "9/s"]
    assert [row[-2].text for row in sheet.rows] == ["100 %", "89 %", "45 %"]
    assert [row[-1].text for row in sheet.rows] == ["100 %", "96.0 %", "40 %"]
    assert sheet.rows[0][6].text == "–", "no TPOT"


def closed(users: int, rps: float, good: int | None = None) -> LoadPoint:
    return dataclasses.replace(
        point(rps, 10.0 * users, float(users), good),
        name=f"{users} at once",
        offered_per_s=None,
        users=users,
    )


# Past saturation more users get less done.
CLOSED = [closed(4, 9, 96), closed(1, 3, 100), closed(64, 5, 40), closed(16, 12, 90)]


def test_closed_loops_come_in_order_of_their_users() -> None:
    sheet = loads(CLOSED)
    assert [row[0].text.split(",")[0] for row in sheet.rows] == [
        *("1 at once", "4 at once", "16 at once", "64 at once")
    ]
    figure = load_curve("TTFT", CLOSED, lambda of: of.ttft)
    assert figure is not None
    order = [figure.svg.index(f"{users} users, completed") for users in (4, 16, 64)]
    assert order == sorted(order) and "1 user, completed" in figure.svg


def test_the_share_of_good_requests_over_users() -> None:
    figure = good_share(CLOSED, 0.9)
    assert figure is not None and figure.title == "Good requests over users"
    assert "64 at once: 40 of 100 good" in figure.svg and "offered" not in figure.svg
    assert good_share([*CLOSED, point(9, 100, 9, 50)]) is None, "users beside one rate are no curve"


def test_without_a_lone_run_nothing_is_said_of_batching() -> None:
    sheet = loads(POINTS[1:])
    assert "batching" not in sheet.columns
    assert all(len(row) == len(sheet.columns) for row in sheet.rows)


def test_a_search_has_a_row_for_each_rate() -> None:
    share = Share(name="each request", wanted=0.9, good=97, judged=100)
    steps = (
        Step(rate=4, standing="met", trials=1, shares=(share,), low=0.91, high=0.99),
        Step(rate=8, standing="missed", trials=2, shares=(share,), low=0.5, high=0.7),
    )
    found = SearchResult(
        highest_met=4, lowest_not_met=8, decided=False, confidence=0.95, steps=steps, told="met at"
    )
    sheet = search_steps(found)
    assert [(row[0].text, row[1].text, row[1].verdict) for row in sheet.rows] == [
        ("4.00/s", "met", True),
        ("8.00/s", "missed", False),
    ]
    assert sheet.notes[0].startswith("Met at. At 95% confidence, over all rates and looks, 4/s")
    assert msgspec.json.decode(msgspec.json.encode(found), type=SearchResult) == found


def test_the_share_of_good_requests_over_load() -> None:
    plot = good_share(POINTS, 0.9)
    assert plot is not None and "wanted 90 %" in plot.svg
    assert "9/s: 40 of 100 good, 40 % (30 % to 50 %)" in plot.svg
    assert good_share(POINTS[:1]) is None
    assert good_share([point(1, 1, 1), point(2, 1, 1)]) is None, "without an SLO"


def test_a_curve_over_requests_in_flight() -> None:
    plot = load_curve("TTFT", POINTS, lambda of: of.ttft, over="in flight")
    assert plot is not None and plot.title == "TTFT over requests in flight"
    assert "knee 9.00<" in plot.svg
