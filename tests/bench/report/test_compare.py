"""Runs side by side."""

from __future__ import annotations

import json
import random

import pytest

from headrace.bench.definitions import DEFINITIONS
from headrace.bench.report.compare import (
    Comparison,
    Line,
    NamedRun,
    compare,
)
from headrace.bench.report.compare_html import comparison_page
from headrace.bench.report.compare_sheets import comparison_json, comparison_sheets
from headrace.bench.report.threshold import parse_threshold
from headrace.bench.slo import parse_slo
from headrace.bench.summary import summarize
from headrace.errors import ConfigError
from tests.bench.report.synthetic import simulated
from tests.bench.streams import run, steady
from tests.page.test_markup import HOSTILE, Parsed

FAST = NamedRun("fast", simulated(seed=1, requests=80, rate=6, metrics=False))
SLOW = NamedRun(
    "slow", simulated(seed=2, requests=80, rate=6, gap_ms=28, metrics=False, about={"load": "x"})
)
SLO = parse_slo("ttft:500 tpot:30")


def compared(*runs: NamedRun, definition: str = "headrace") -> Comparison:
    under = DEFINITIONS[definition]
    return compare(runs, source=random.Random(3), definition=under, slo=SLO, resamples=200)


def line(of: Comparison, metric: str, statistic: str) -> Line:
    return next(one for one in of.lines if (one.metric, one.statistic) == (metric, statistic))


def test_what_is_slower_is_found_and_sure() -> None:
    got = line(compared(FAST, SLOW), "tpot", "p50")
    ratio = got.ratios[1]
    assert got.ratios[0] is None and ratio is not None and ratio.differs
    assert ratio.low is not None and ratio.high is not None
    assert 1.7 < ratio.low < ratio.ratio < ratio.high < 2.5
    assert ratio.ratio == pytest.approx((got.values[1] or 0) / (got.values[0] or 1))


def test_a_run_is_no_different_from_itself() -> None:
    got = compared(FAST, FAST)
    for one in got.lines:
        ratio = one.ratios[1]
        assert ratio is None or (ratio.ratio == pytest.approx(1) and not ratio.differs)
    assert got.differences == ()


def test_gaps_are_compared_stream_by_stream() -> None:
    ratio = line(compared(FAST, SLOW), "itl_chunk", "p50").ratios[1]
    assert ratio is not None and ratio.low is not None and ratio.high is not None
    assert 1.5 < ratio.low < ratio.ratio < ratio.high < 2.8


def test_rates_and_shares_have_intervals_where_they_can() -> None:
    got = compared(FAST, SLOW)
    good = line(got, "good", "").ratios[1]
    assert good is not None and good.low is not None and good.ratio < 1
    assert {one.name for one in got.lines} >= {"tps", "rps", "failed", "in_flight"}
    assert [one for one in got.lines if one.name == "ttfot"] == [], "nobody reasons"


def test_chosen_metrics_and_thresholds() -> None:
    got = compare(
        [FAST, SLOW],
        source=random.Random(1),
        slo=SLO,
        resamples=200,
        metrics=["tpot"],
        thresholds=[parse_threshold(one) for one in ("tpot_p50>1.2", "itl_p90>9", "good<0.99")],
    )
    assert {one.name for one in got.lines} == {"tpot"}
    assert [one.standing for one in got.outcomes] == ["crossed", "kept", "crossed"]
    assert got.fails
    sheet = comparison_sheets(got)[1]
    assert sheet.title.startswith("Thresholds") and sheet.rows[0][1].verdict is False
    with pytest.raises(ConfigError, match="needs an SLO"):
        compare([FAST, SLOW], source=random.Random(1), thresholds=[parse_threshold("good<1")])


def test_a_threshold_on_what_a_run_does_not_have() -> None:
    silent = NamedRun("silent", run())
    got = compare(
        [FAST, silent],
        source=random.Random(1),
        resamples=20,
        thresholds=[parse_threshold("ttft_p95>2"), parse_threshold("tps<0.1")],
    )
    assert [one.standing for one in got.outcomes] == ["unknown", "unknown"] and got.fails


def test_what_the_runs_do_not_share_is_said() -> None:
    got = dict(compared(FAST, SLOW).differences)
    assert got == {"seed": (1, 2), "load": ("Poisson, 12 requests/s", "x")}
    sheet = comparison_sheets(compared(FAST, SLOW))[1]
    assert sheet.title == "How the runs differ"


@pytest.mark.long
def test_good_news_and_bad_news_have_a_colour() -> None:
    first, *_ = comparison_sheets(compared(FAST, SLOW))
    tpot = next(row for row in first.rows if (row[0].text, row[1].text) == ("tpot", "p50"))
    assert tpot[5].verdict is False and tpot[5].text.endswith("×") and "–" in tpot[5].note
    other, *_ = comparison_sheets(compared(SLOW, FAST))
    tpot = next(row for row in other.rows if (row[0].text, row[1].text) == ("tpot", "p50"))
    assert tpot[5].verdict is True
    offered = next(row for row in first.rows if row[0].text == "offered")
    assert offered[5].verdict is None


def test_three_runs_as_json() -> None:
    made = json.loads(comparison_json(compared(FAST, SLOW, FAST)))
    assert made["names"] == ["fast", "slow", "fast"]
    assert all(len(one["values"]) == len(one["ratios"]) == 3 for one in made["lines"])


def test_the_same_source_of_chance_gives_the_same_comparison() -> None:
    assert compared(FAST, SLOW) == compared(FAST, SLOW)


@pytest.mark.parametrize("name", list(DEFINITIONS))
def test_under_every_definition(name: str) -> None:
    got = compared(FAST, SLOW, definition=name)
    assert got.definition == name and any(one.unit == "ms" for one in got.lines)


@pytest.mark.parametrize("name", list(DEFINITIONS))
def test_its_values_are_those_of_the_summary(name: str) -> None:
    """Of every latency, statistic and clock, and of the steady window; the weights of a definition
    and its interpolation are in both."""
    under = DEFINITIONS[name]
    got = compared(FAST, SLOW, definition=name)
    canonical = {"itl": "itl_chunk"}
    seen = 0
    for at, one in enumerate((FAST, SLOW)):
        summary = summarize(one.run, definition=under, slo=SLO)
        for row in got.lines:
            metric = under.metric(canonical.get(row.name, row.name))
            if row.unit != "ms" or metric is None:
                continue
            side = summary.from_intended if "intended" in row.metric else summary.from_sent
            wanted = getattr(side[metric.name].distribution, row.statistic)
            assert row.values[at] == pytest.approx(wanted), (row.metric, row.statistic)
            seen += 1
        assert summary.steady is not None
        rates = {row.name: row.values[at] for row in got.lines}
        assert rates["tps"] == pytest.approx(summary.steady.tokens_per_s)
        assert rates["rps"] == pytest.approx(summary.steady.requests_per_s)
    assert seen >= 18


def test_weights_are_in_values_ratios_and_means() -> None:
    """GuideLLM: one request of 2 tokens 30 ms apart, one of 11 tokens 10 ms apart."""
    base = NamedRun("a", run(steady(2, 10, 30, index=0), steady(11, 10, 10, index=1)))
    ours = NamedRun("b", run(steady(2, 10, 30, index=0), steady(11, 10, 20, index=1)))
    got = compare(
        [base, ours],
        source=random.Random(1),
        definition=DEFINITIONS["guidellm"],
        resamples=50,
        thresholds=[parse_threshold("tpot_mean>1.5")],
    )
    tpot = line(got, "inter_token_latency", "p50")
    assert tpot.values == (pytest.approx(10), pytest.approx(20))
    assert tpot.ratios[1] is not None and tpot.ratios[1].ratio == pytest.approx(2)
    # (30 + 10 · 20) / (30 + 10 · 10)
    assert "1.77 times" in got.outcomes[0].told


def test_what_the_servers_said_stands_beside() -> None:
    told = NamedRun("told", simulated(seed=1, requests=80, rate=6))
    got = compared(told, FAST)
    for name in ("mbu", "mfu", "kv", "hits", "preemptions"):
        (row,) = [one for one in got.lines if one.name == name]
        assert row.values[0] is not None and row.values[1] is None


def test_one_run_is_no_comparison() -> None:
    with pytest.raises(ConfigError, match="1 run to compare"):
        compared(FAST)


def test_runs_without_an_answer_have_no_ratios() -> None:
    empty = NamedRun("empty", run())
    got = compared(FAST, empty)
    assert all(one.ratios[1] is None or one.ratios[1].ratio == 0 for one in got.lines)
    assert "Provenance" in comparison_page(got, (FAST, empty))


def test_the_page_has_every_run_and_no_foreign_markup() -> None:
    hostile = NamedRun(HOSTILE, SLOW.run)
    page = comparison_page(compared(FAST, hostile), (FAST, hostile), slo=SLO)
    parsed = Parsed(page)
    assert len([name for name, _ in parsed.tags if name == "script"]) == 1
    assert HOSTILE in "".join(parsed.words)
    assert not [name for name, facts in parsed.tags if any(key.startswith("on") for key in facts)]
