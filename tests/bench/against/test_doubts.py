"""Figures are doubted where they vary or exceed what is possible, and not otherwise."""

from __future__ import annotations

import pytest

from headrace.bench.against.doubts import doubts_of_machine, doubts_of_row
from headrace.bench.against.turns import CaseResult
from headrace.telemetry.machine import Limits


@pytest.mark.parametrize(
    ("ours", "peer", "most", "doubts"),
    [
        ((), (), None, []),
        ((10, 15), (10, 15), 20, []),
        ((10.4,), (5,), 10, []),
        ((10.6,), (5,), 10, ["its ratio is above the largest possible"]),
        ((10, 15.5), (10, 10), None, ["runs of headrace differ by a factor of 1.6"]),
        ((10, 10), (30, 10), None, ["runs of the peer differ by a factor of 3.0"]),
        ((10, 10, 11, 30), (10, 10, 9, 2), None, []),
        ((10, 10, 30, 30), (10, 10, 9, 2), None, ["runs of headrace differ by a factor of 3.0"]),
    ],
)
def test_a_row_is_doubted(
    ours: tuple[float, ...], peer: tuple[float, ...], most: float | None, doubts: list[str]
) -> None:
    found = doubts_of_row(CaseResult(case="a", ours=ours, peer=peer, most_tokens_per_s=most))
    assert len(found) == len(doubts)
    assert all(text.startswith(doubt) for text, doubt in zip(found, doubts, strict=True))


@pytest.mark.parametrize(("readings", "doubted"), [([], 0), ([20, 30], 0), ([20, 25, 31], 1)])
def test_readings_of_the_bandwidth_are_doubted(readings: list[float], doubted: int) -> None:
    limits = [Limits(reading, 1.0, "int8", 1.0) for reading in readings]
    assert len(doubts_of_machine(limits)) == doubted
