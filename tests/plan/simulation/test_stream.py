"""Loads: rates, days, copies, lanes."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from headrace.bench.prompts.lengths import Fixed, parse_lengths
from headrace.bench.traces.row import TraceRow
from headrace.errors import ConfigError
from headrace.plan.simulation.arrival import Arrival
from headrace.plan.simulation.stream import (
    DAY,
    Lane,
    SharedPrefix,
    daily,
    drawn,
    in_lanes,
    replayed,
    scaled,
)

ROWS = tuple(
    TraceRow(at_ns=at * 9_000_000_000, prompt_tokens=20, output_tokens=3, blocks=(at % 5, 100 + at))
    for at in range(400)
)


def in_order(arrivals: list[Arrival]) -> bool:
    return all(one.at_s <= two.at_s for one, two in pairwise(arrivals))


def test_a_drawn_load_has_its_rate_lengths_and_burstiness() -> None:
    prompts = parse_lengths("10..30", "--prompt")
    found = list(drawn(50, 100, prompts, Fixed(7), seed=3))
    assert len(found) == pytest.approx(5000, rel=0.05)
    assert in_order(found)
    assert {one.output_tokens for one in found} == {7}
    assert {one.prompt_tokens for one in found} == set(range(10, 31))
    assert found == list(drawn(50, 100, prompts, Fixed(7), seed=3))
    assert found != list(drawn(50, 100, prompts, Fixed(7), seed=4))
    gaps = {
        shape: np.diff([one.at_s for one in drawn(50, 100, prompts, prompts, burstiness=shape)])
        for shape in (0.25, 1.0, math.inf)
    }
    spreads = {shape: one.std() / one.mean() for shape, one in gaps.items()}
    assert spreads[0.25] == pytest.approx(2, rel=0.1)
    assert spreads[1.0] == pytest.approx(1, rel=0.1)
    assert spreads[math.inf] == pytest.approx(0, abs=1e-6)


def test_prompts_of_a_group_share_their_beginning() -> None:
    found = list(drawn(10, 20, Fixed(5), Fixed(1), shared=SharedPrefix(64, 3)))
    assert {one.prompt_tokens for one in found} == {69}
    assert {one.shared for one in found} == {(0,), (1,), (2,)}
    assert {one.shared_tokens for one in found} == {64}


def test_a_trace_is_replayed_as_it_is_and_faster() -> None:
    found = list(replayed(ROWS, speed=2, block_tokens=16))
    assert [one.at_s for one in found[:3]] == [0, 4.5, 9]
    assert found[1] == Arrival(4.5, 20, 3, 0, (1, 101), 16)
    assert next(replayed(ROWS)).shared == ()


@pytest.mark.parametrize("factor", [0.3, 2.6])
def test_a_load_is_scaled_by_chance_and_stays_in_order(factor: float) -> None:
    found = list(scaled((Arrival(at * 0.5, 10, 10) for at in range(5000)), factor))
    assert len(found) == pytest.approx(5000 * factor, rel=0.06)
    assert in_order(found)
    assert found[0].at_s >= 0


def test_a_day_follows_its_curve() -> None:
    curve = (0.5, 0, 1, 2.5)
    found = list(daily(ROWS, curve, block_tokens=16))
    assert in_order(found)
    hours = np.histogram([one.at_s for one in found], bins=4, range=(0, 4 * 3600))[0]
    assert hours[1] == 0
    assert hours[2] == pytest.approx(400, abs=1)
    assert hours[0] == pytest.approx(200, rel=0.2)
    assert hours[3] == pytest.approx(1000, rel=0.2)
    blocks = [{one.shared for one in found if one.at_s // 3600 == hour} for hour in (0, 2)]
    assert not blocks[0] & blocks[1]


def test_the_curve_of_a_day_is_as_it_is_stated() -> None:
    assert len(DAY) == 24
    assert (max(DAY), DAY.index(max(DAY))) == (1.0, 15)
    assert (min(DAY), DAY.index(min(DAY))) == (0.2, 3)


def test_what_makes_no_load_is_refused() -> None:
    with pytest.raises(ConfigError, match="rate is 0"):
        next(drawn(0, 1, Fixed(1), Fixed(1)))
    with pytest.raises(ConfigError, match="burstiness"):
        next(drawn(1, 1, Fixed(1), Fixed(1), burstiness=0))
    with pytest.raises(ConfigError, match=r"burstiness is 1e-300; it must be at least 0.001"):
        next(drawn(1, 1, Fixed(1), Fixed(1), burstiness=1e-300))
    with pytest.raises(ConfigError, match="scale is -1"):
        next(scaled([], -1))
    with pytest.raises(ConfigError, match="trace of an hour"):
        next(daily((ROWS[0], TraceRow(at_ns=10**13, prompt_tokens=1, output_tokens=1))))
    with pytest.raises(ConfigError, match="day curve"):
        next(daily(ROWS, (1, -1)))
    with pytest.raises(ConfigError, match=r"make 0\.9"):
        next(in_lanes([Arrival(0, 1, 1)], (Lane(0, 0.4), Lane(1, 0.5))))
