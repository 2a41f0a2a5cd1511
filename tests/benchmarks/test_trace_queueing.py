"""Queues that are known beforehand, and what is said of runs beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.load_runs import RunError
from benchmarks.trace_queueing import (
    TRACE,
    busiest,
    disagreements,
    figures,
    find_trace,
    known,
    places_for,
    report,
    waits_s,
)
from headrace.bench.traces.formats import read_trace
from headrace.bench.traces.row import TraceRow


def rows(*at_s: float, tokens: int = 91) -> list[TraceRow]:
    """91 tokens are 1 s of work: 100 ms and ninety times 10 ms."""
    return [TraceRow(at_ns=round(at * 1e9), prompt_tokens=5, output_tokens=tokens) for at in at_s]


def test_waits_are_those_of_a_queue_in_order() -> None:
    assert waits_s(rows(0, 0, 5, 20), 10.0, 1) == pytest.approx([0, 1, 1.5, 1])
    assert waits_s(rows(0, 0, 5, 20), 10.0, 2) == pytest.approx([0, 0, 0.5, 0])
    assert waits_s(rows(0, 0, 5, 20), 1.0, 2) == [0, 0, 0, 0]
    assert waits_s(rows(0, 0, 5, 20), 10.0, 4) == [0, 0, 0, 0]


def test_places_are_those_that_the_mean_load_needs() -> None:
    # Eleven seconds of work in one second.
    assert places_for(rows(*range(11)), 10.0, 1.0) == 11
    assert places_for(rows(*range(11)), 10.0, 1.5) == 17
    assert places_for(rows(*range(11)), 1.0, 1.0) == 2
    with pytest.raises(RunError, match="no duration"):
        places_for(rows(3), 10.0, 1.0)


def test_what_is_known_of_a_queue() -> None:
    got = known(rows(0, 0, 5, 20), 10.0, 1)
    assert got["ttft_ms"]["p50"] == pytest.approx(1100)
    assert got["queue_ms"]["p90"] == pytest.approx(1350)
    assert (got["waited"], got["within_slo"]) == (0.75, 0.25)
    # Four seconds of work in the first five, one place.
    assert got["busiest"] == pytest.approx(0.8)
    assert busiest(rows(0, 0, 5, 20, 80), 10.0, 2) == pytest.approx(0.4)


def test_a_missing_trace_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_ASSETS", str(tmp_path))
    with pytest.raises(RunError, match=r"AzureLLMInferenceTrace_conv\.csv.*--trace"):
        find_trace(None)
    named = tmp_path / "mine.csv"
    named.write_text("")
    assert find_trace(named) == named


def test_the_real_trace_queues(shared_assets: Path) -> None:
    trace = read_trace(shared_assets / TRACE, limit=6000)
    places = places_for(trace.rows, 10.0, 1.0)
    got = known(trace.rows, 10.0, places)
    assert got["waited"] > 0.5
    # A closed loop of as many users would see none of it.
    assert got["ttft_ms"]["p50"] > 1000


def found() -> dict[str, Any]:
    """A measurement in which all is as it has to be."""
    queued = {"p50": 1500.0, "p90": 2400.0, "p99": 2900.0}
    free = {"p50": 100.5, "p90": 101.0, "p99": 103.0}
    queue = {"p50": 1400.0, "p90": 2300.0, "p99": 2800.0}
    base = {
        "rps": 48.0,
        "in_flight": 130.0,
        "completed": 10,
        "errors": {},
        "verdict": ["It was not."],
    }
    nothing = dict.fromkeys(("p50", "p90", "p99"), 0.0)
    return {
        "trace": "conv.csv", "requests": 10, "seconds": 2.0, "speed": 10.0, "places": 131,
        "known": {"ttft_ms": queued, "queue_ms": queue, "waited": 0.9, "busiest": 1.17,
                  "within_slo": 0.1},
        "runs": {
            "replay": base | {"intended_ms": queued, "sent_ms": queued, "queue_ms": queue,
                              "within_slo": 0.1},
            "capped": base | {"intended_ms": queued, "sent_ms": free, "queue_ms": nothing,
                              "within_slo": 0.1},
            "closed": base | {"intended_ms": free, "sent_ms": free, "queue_ms": nothing,
                              "within_slo": 1.0},
        },
    }  # fmt: skip


def test_the_paragraph_is_of_what_was_measured() -> None:
    told = report(found())
    assert "90% of the requests come when all places are taken" in told
    assert "| closed loop of 131 users, from when it was sent | 100 | 101 | 103 | - | - |" in told
    assert "| replay, from the intended time | 1,500 | 2,400 | 2,900 | 1,400 | 2,800 |" in told
    assert disagreements(found()) == []


@pytest.mark.parametrize(
    ("run", "clock", "value"),
    [
        ("replay", "intended_ms", 200.0),
        ("capped", "sent_ms", 2900.0),
        ("closed", "intended_ms", 2900.0),
    ],
)
def test_what_is_not_as_it_has_to_be_is_said(run: str, clock: str, value: float) -> None:
    wrong = found()
    wrong["runs"][run][clock] = wrong["runs"][run][clock] | {"p99": value}
    assert len(disagreements(wrong)) == 1
    assert "Not as it has to be: " + run in report(wrong)


def test_a_summary_gives_its_figures() -> None:
    spread = {"unit": "ms", "distribution": {"p50": 1.0, "p90": 2.0, "p99": 3.0, "mean": 1.5}}
    summary = {
        "from_intended": {"ttft": spread}, "from_sent": {}, "queue": None, "rps": 2.0,
        "concurrency": {"mean": 1.0}, "goodput": {"fraction": 0.5},
        "requests": {"completed": 3, "errors": {"http": 1}},
        "client": {"sentences": ["It was."], "client_bound": True},
    }  # fmt: skip
    got = figures(summary)
    assert got["intended_ms"] == {"p50": 1.0, "p90": 2.0, "p99": 3.0}
    assert (got["sent_ms"], got["queue_ms"], got["within_slo"]) == (None, None, 0.5)
    assert got["errors"] == {"http": 1}
