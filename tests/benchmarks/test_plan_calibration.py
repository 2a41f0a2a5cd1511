"""What the calibration's benchmark says of errors, and when it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.plan_calibration import arguments, errors_by, missed, report, what


def row(test: str, error: float, model: str = "0.6B") -> dict[str, Any]:
    return {
        "model": model, "kind": "Q8_0", "test": test, "error": error, "left_out_error": None,
        "measured_tokens_per_s": 100.0, "predicted_tokens_per_s": 100.0 * (1 + error),
    }  # fmt: skip


ROWS = [row("pp512 b1", 0.02), row("pp8192 b1", -0.06), row("tg32 b1", 0.01), row("tg32 b8", 0.25)]


def test_tests_are_told_apart() -> None:
    tests = ("pp512 b1", "tg32 @ d2048 b1", "tg32 b16", "pp128+tg64 b8")
    assert [what(test) for test in tests] == [
        "prefill", "decode, batch 1", "decode, batches", "prompts and answers",
    ]  # fmt: skip


def test_errors_are_sizes_by_group_and_in_all() -> None:
    assert errors_by(ROWS, "error") == [
        ["0.6B, Q8_0, prefill", 2, "4.0", "6.0"],
        ["0.6B, Q8_0, decode, batch 1", 1, "1.0", "1.0"],
        ["0.6B, Q8_0, decode, batches", 1, "25.0", "25.0"],
        ["**all**", 4, "8.5", "25.0"],
    ]
    assert errors_by(ROWS, "left_out_error") == [["**all**", 0, None, None]]


def test_missed_aims_are_sentences() -> None:
    found = {"both": {"rows": ROWS}, "other": {"0.6B": [row("tg32 b1", 0.2, "1B")]}}
    assert missed(found) == [
        "mean error 8.5%, the aim is 8%",
        "worst error 25.0%, the aim is 20%",
        "calibrated on 0.6B the other has a mean error of 20.0%, the aim is 12%",
    ]
    told = report(found)
    assert "| 0.6B Q8_0 tg32 b8 | 100.0 | 125.0 | 25.0 |" in told
    assert "Calibrated on 0.6B alone" in told
    assert missed({"both": {"rows": ROWS[:3]}, "other": {}}) == []


def test_quick_is_one_small_model() -> None:
    quick = arguments(["--quick", "--save", "x"])
    assert (quick.shapes, quick.kinds, quick.longest) == (["small"], ["Q8_0"], 32)
    whole = arguments(["--save", "x"])
    assert whole.save == Path("x") and len(whole.shapes) * len(whole.kinds) == 6
