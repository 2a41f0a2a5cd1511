"""What a search is asked for, and how its result is told."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.goodput_search import arguments, report, search_flags, succeeded

SHARE = {"name": "each request", "wanted": 0.9, "good": 195, "judged": 200}
SEARCH: dict[str, Any] = {
    "trial_rule": "Trials of 30 s",
    "highest_met": 4.0, "lowest_not_met": 4.2, "decided": True, "confidence": 0.95,
    "told": "met at 4/s, missed at 4.2/s",
    "steps": [
        {"rate": 4.2, "standing": "missed", "trials": 2, "low": 0.5, "high": 0.7,
         "shares": [SHARE, SHARE | {"name": "ttft:p95<300ms", "good": 120}]},
        {"rate": 4.0, "standing": "met", "trials": 1, "low": 0.93, "high": 0.99, "shares": [SHARE]},
    ],
}  # fmt: skip
FOUND: dict[str, Any] = {
    "model": "headrace-base", "slo": "ttft:500 tpot:50", "attainment": 0.9, "input_tokens": 256,
    "output_tokens": 128, "search": SEARCH,
    "summary": {
        "from_intended": {"ttft": {"distribution": {"p50": 80.0, "p99": 400.0}}},
        "goodput": {"requests_per_s": 3.9, "tokens_per_s": 499.0, "fraction": 0.975},
        "tps_system": 511.0,
        "client": {"sentences": ["The client was not the limit."]},
    },
}  # fmt: skip


def test_the_search_is_the_issues() -> None:
    flags = search_flags(arguments([]), Path("out"))
    pairs = dict(pairwise(flags))
    assert "--search" in flags and "--rate" not in flags
    assert "--requests" not in flags, "how long trials have to be is for the search to find"
    assert pairs["--goodput"] == "ttft:500 tpot:50"
    assert (pairs["--save"], pairs["--attainment"]) == ("out", "0.9")
    quick = arguments(["--quick"])
    assert quick.requests < 50 and quick.budget <= 30
    assert "--rate" in search_flags(quick, Path("out"))


def test_the_report_has_rates_in_order_and_the_confidence() -> None:
    told = report(FOUND)
    assert told.index("| 4.00 | 1 | 195 of 200 | 0.930 to 0.990 | met |") < told.index(
        "| 4.20 | 2 | 120 of 200 | 0.500 to 0.700 | missed |"
    )
    assert "**met at 4/s, missed at 4.2/s**" in told and "95% confidence" in told
    assert "| TTFT | 80.0 | 400.0 |" in told and "| TPOT" not in told
    assert "Goodput 3.90 requests/s, 499 tokens/s, 97.5% of requests good" in told


def test_a_search_without_a_rate_has_no_best_run() -> None:
    missed = SEARCH | {"highest_met": None, "told": "no rate that was tried met the SLO"}
    told = report(FOUND | {"search": missed})
    assert "no rate that was tried met the SLO" in told and "Goodput" not in told


def test_success_needs_a_rate() -> None:
    assert succeeded(SEARCH)
    assert succeeded(SEARCH | {"decided": False}), "next to the limit nothing is decided in time"
    assert not succeeded(SEARCH | {"highest_met": None})
