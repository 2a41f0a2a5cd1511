"""How measured and simulated runs are put beside each other, and when the benchmark fails."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from benchmarks.plan_simulated import (
    CALIBRATED_SHARES,
    Checked,
    Times,
    arguments,
    figures_of,
    measured_times,
    missed,
    report,
    simulated_times,
)
from headrace.plan.simulation.settings import EngineSettings
from tests.plan.runs import LINE, crowded


def check(share: float, measured: float, simulated: float) -> Checked:
    times = [Times([each, each, 2 * each], [each / 10] * 3) for each in (measured, simulated, 0.01)]
    return Checked(share, 10 * share, *times, False)


def found(*checks: Checked) -> dict[str, Any]:
    return {
        "model": "headrace-base", "holds": 10.0, "users": 8, "lengths": ["128..384", "64..192"],
        "line": asdict(LINE), "engine_line": asdict(LINE),
        "fit": {"requests": 500, "alone": 60, "mean_error": 0.1, "engine_mean_error": 0.3},
        "checks": [figures_of(share, checks) for share in dict.fromkeys(c.share for c in checks)],
    }  # fmt: skip


def test_a_simulation_of_the_servers_own_rule_gives_its_times() -> None:
    """The run was made by steps of this line, by the rule that the scheduler keeps."""
    run = crowded()
    engine = EngineSettings(latency=LINE, num_blocks=4096, prefix_caching=False)
    measured, simulated = measured_times(run), simulated_times(run, engine)
    assert sorted(simulated.ttft) == pytest.approx(sorted(measured.ttft), rel=0.02)
    assert sorted(simulated.tpot) == pytest.approx(sorted(measured.tpot), rel=0.02)


def test_figures_are_over_all_runs_with_single_ones_beside() -> None:
    one = figures_of(0.3, [check(0.3, 0.1, 0.1), check(0.3, 0.2, 0.1), check(0.6, 9.0, 9.0)])
    assert one["runs"] == 2 and one["requests"] == 6 and one["rate"] == 3.0
    ttft = one["figures"][0]
    assert ttft["figure"] == "TTFT p50" and ttft["measured"]["all"] == 0.2
    assert (ttft["measured"]["least"], ttft["measured"]["most"]) == (0.1, 0.2)
    assert ttft["ratio"] == pytest.approx(0.1 / 0.2)


def test_the_aim_is_within_fifteen_in_a_hundred() -> None:
    assert missed(found(check(0.3, 0.1, 0.11))) == []
    told = missed(found(check(0.3, 0.1, 0.12), check(0.6, 0.1, 0.1)))
    assert len(told) == 4 and told[0].startswith("TTFT p50 at 3.0/s is simulated 1.20 times")


def test_it_is_told_with_spread() -> None:
    text = report(found(check(0.3, 0.1, 0.11), check(0.3, 0.2, 0.11)))
    assert "| 3.0/s (30%), TTFT p50 | 200.00 | 100.00 to 200.00 | 110.00 |" in text
    assert "off by 10.0% on their streams, the second by 30.0%" in text


def test_calibration_runs_at_other_rates_than_are_checked() -> None:
    whole, quick = arguments([]), arguments(["--quick"])
    assert not set(whole.shares) & set(CALIBRATED_SHARES)
    assert quick.rounds == 1 and quick.seconds < whole.seconds
