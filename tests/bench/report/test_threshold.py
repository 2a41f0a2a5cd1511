"""Thresholds on ratios, for CI."""

from __future__ import annotations

import pytest

from headrace.bench.ratio import Ratio
from headrace.bench.report.threshold import judged, parse_threshold
from headrace.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "metric", "statistic", "clock", "above", "factor"),
    [
        ("ttft_p95>1.10", "ttft", "p95", "intended", True, 1.1),
        (" e2e_mean@sent > 2 ", "e2e", "mean", "sent", True, 2.0),
        ("itl_p99.9>1.5", "itl", "p99.9", "intended", True, 1.5),
        ("e2el_median>1", "e2e", "p50", "intended", True, 1.0),
        ("tps<0.95", "tps", "", "intended", False, 0.95),
    ],
)
def test_what_is_written_is_understood(
    text: str, metric: str, statistic: str, clock: str, above: bool, factor: float
) -> None:
    got = parse_threshold(text)
    assert (got.metric, got.statistic, got.clock) == (metric, statistic, clock)
    assert (got.above, got.factor, got.text) == (above, factor, text.strip())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("faster", "is not METRIC>FACTOR; write ttft_p95>1.10"),
        ("speed_p95>1", "'speed' is not known; use one of ttft_p95"),
        ("ttft>1.1", "ttft has many values; write ttft_p95"),
        ("ttft_p95<1.1", "less ttft is better; write >"),
        ("tps>1", "more tps is better; write <"),
        ("tps_p95<1", "tps is one number"),
        ("ttft_p101>1", "p101 is not from p0 to p100"),
        ("ttft_p1.2.3>1", "is not from p0 to p100"),
        ("ttft_p95>0", "not a ratio above 0"),
        ("ttft_p95>1.2.3", "not a ratio above 0"),
        ("ttft_p95@started>1", "write @intended or @sent"),
        ("tps@sent<1", "after a latency"),
        ("itl_mean>1", "write itl_p50"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match="--fail-if") as raised:
        parse_threshold(text)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("text", "ratio", "standing"),
    [
        ("ttft_p95>1.1", Ratio(1.3, 1.11, 1.5), "crossed"),
        ("ttft_p95>1.1", Ratio(1.3, 1.09, 1.5), "kept"),
        ("ttft_p95>1.1", Ratio(1.3, None, None), "unsure"),
        ("ttft_p95>1.1", None, "unknown"),
        ("tps<0.9", Ratio(0.8, 0.7, 0.89), "crossed"),
        ("tps<0.9", Ratio(0.8, 0.7, 0.91), "kept"),
    ],
)
def test_the_whole_interval_decides(text: str, ratio: Ratio | None, standing: str) -> None:
    (got,) = judged(parse_threshold(text), ["base", "new"], [None, ratio])
    assert (got.run, got.standing) == ("new", standing)
    assert got.fails == (standing in ("crossed", "unknown"))
    assert "new" in got.told and "base" in got.told
