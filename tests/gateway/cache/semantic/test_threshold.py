"""Thresholds by judged pairs: rates, their intervals, and which one is recommended."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from headrace.errors import ConfigError
from headrace.gateway.cache.semantic.arithmetic import normalised
from headrace.gateway.cache.semantic.threshold import (
    SHIPPED_PAIRS,
    Pair,
    pairs_needed,
    rate_of,
    read_pairs,
    recommended,
    similarities_of,
    table_of,
)


def pair(same: bool, a: str = "one", b: str = "other") -> Pair:
    return Pair(a=a, b=b, same=same)


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    # Newcombe 1998, table I: 81/263, 15/148, 0/20, 1/29.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611),
     (1, 29, 0.0061, 0.1718)],
)  # fmt: skip
def test_the_interval_is_wilsons(count: int, total: int, low: float, high: float) -> None:
    found = rate_of(count, total)
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


def test_a_rate_of_nothing_is_anything() -> None:
    found = rate_of(0, 0)
    assert (found.low, found.high) == (0.0, 1.0) and math.isnan(found.share)


def test_the_lowest_threshold_that_is_surely_right_is_recommended() -> None:
    pairs = [pair(same=True)] * 10 + [pair(same=False)] * 400
    similarities = [0.99] * 6 + [0.93] * 4 + [0.5] * 398 + [0.95, 0.9]
    rows = table_of(pairs, similarities, (0.9, 0.94, 0.96, 0.98))
    assert [(row.hits.count, row.false_hits.count) for row in rows] == [
        (10, 2), (6, 1), (6, 0), (6, 0),
    ]  # fmt: skip
    found = recommended(rows, 0.01)
    assert found is not None and found.threshold == 0.96
    assert recommended(rows, 0.005) is None
    # One false hit in 400 may be up to 1.4 %.
    lower = recommended(rows, 0.02)
    assert lower is not None and lower.threshold == 0.9


def test_how_many_pairs_it_takes() -> None:
    for most in (0.01, 0.05, 0.3):
        needed = pairs_needed(most)
        assert rate_of(0, needed).high < most <= rate_of(0, needed - 1).high


def test_pairs_that_are_never_compared_never_hit() -> None:
    one = normalised(np.array([1.0, 2.0], dtype="<f4").tobytes())
    assert one is not None
    pairs = [pair(False, "take 5 mg", "take 50 mg"), pair(True, "take five", "have five")]
    found = similarities_of(pairs, [one] * 4)
    assert found == [None, pytest.approx(1.0)]
    (row,) = table_of(pairs, found, (0.9,))
    assert (row.hits.count, row.false_hits.count) == (1, 0)


def test_the_shipped_pairs_are_what_the_docs_say() -> None:
    pairs = read_pairs(SHIPPED_PAIRS)
    assert len(pairs) == 124
    assert sum(not one.same for one in pairs) == 64
    assert len({(one.a, one.b) for one in pairs}) == 124


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": "x", "b": "y", "same": true}\n', "no pair has same: false"),
        ('{"a": "x", "b": "y", "same": false}\n\n{"a": "x"}\n', r"pairs\.jsonl:3: .*missing"),
        ('{"a": "x", "b": "y", "same": "no"}', r":1: "),
        ("{", r":1: "),
    ],
)
def test_a_file_that_is_not_right(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=told):
        read_pairs(path)
