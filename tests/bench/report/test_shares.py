"""Ratios of shares of requests."""

from __future__ import annotations

import random

import pytest

from headrace.bench.report.shares import ratio_of_shares


def counted(hits: int, of: int) -> list[bool]:
    return [at < hits for at in range(of)]


def test_none_and_all_have_an_interval() -> None:
    none = ratio_of_shares(counted(0, 80), counted(76, 80))
    assert none is not None and none.ratio == 0 and none.low == 0
    assert none.high is not None and none.high < 0.2
    every = ratio_of_shares(counted(80, 80), counted(80, 80))
    assert every is not None and every.ratio == 1 and not every.differs
    assert ratio_of_shares(counted(3, 80), counted(0, 80)) is None
    assert ratio_of_shares([], counted(1, 2)) is None


@pytest.mark.parametrize(("ours", "base"), [(0.9, 0.95), (0.5, 0.9), (0.02, 0.05)])
def test_intervals_hold_the_true_ratio_as_often_as_they_say(ours: float, base: float) -> None:
    draw = random.Random(4)
    held = 0
    for _ in range(400):
        above = [draw.random() < ours for _ in range(300)]
        below = [draw.random() < base for _ in range(300)]
        got = ratio_of_shares(above, below)
        if got is None:
            continue
        assert got.low is not None and got.high is not None
        held += got.low <= ours / base <= got.high
    assert held >= 370
