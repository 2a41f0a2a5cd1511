"""A comparison as tables for terminal and page, and as JSON."""

from __future__ import annotations

import msgspec

from headrace.bench.ratio import Ratio
from headrace.bench.report.compare import Comparison, Line
from headrace.bench.report.threshold import Outcome
from headrace.bench.statistics import CONFIDENCE
from headrace.page.figures import DASH, figure, share
from headrace.page.sheet import Cell, Sheet

_STANDING = {
    "crossed": "crossed",
    "kept": "kept",
    "unsure": "not sure",
    "unknown": "undecided",
}


def comparison_sheets(of: Comparison) -> list[Sheet]:
    """Ratios, then thresholds where there are any, then what the runs do not have in common."""
    made = [_ratios(of)]
    if of.outcomes:
        made.append(
            Sheet(
                "Thresholds (--fail-if)",
                ("threshold", "", "what was found"),
                tuple(_outcome_row(one) for one in of.outcomes),
                names=3,
            )
        )
    if of.differences:
        made.append(
            Sheet(
                "How the runs differ",
                ("", *of.names),
                tuple(
                    (Cell(key), *(Cell(DASH if value is None else str(value)) for value in values))
                    for key, values in of.differences
                ),
                names=1 + len(of.names),
            )
        )
    return made


def _ratios(of: Comparison) -> Sheet:
    columns = ["metric", "", "unit", of.names[0]]
    for name in of.names[1:]:
        columns += [name, "ratio"]
    notes = (
        f"Ratio: the figure divided by that of {of.names[0]}; below it the interval that "
        f"holds the true ratio with {CONFIDENCE:.0%} confidence. Coloured where the interval "
        "excludes 1. Without an interval: too few samples, or one figure for a whole run.",
    )
    rows = tuple(_line_row(line) for line in of.lines)
    return Sheet(f"Comparison, by {of.definition}", tuple(columns), rows, notes, names=3)


def _line_row(line: Line) -> tuple[Cell, ...]:
    cells = [Cell(line.metric), Cell(line.statistic), Cell(line.unit)]
    for at, (value, ratio) in enumerate(zip(line.values, line.ratios, strict=True)):
        cells.append(Cell(share(value) if line.unit == "share" else figure(value)))
        if at:
            cells.append(_ratio_cell(ratio, line.better))
    return tuple(cells)


def _ratio_cell(ratio: Ratio | None, better: str | None) -> Cell:
    if ratio is None:
        return Cell(DASH)
    verdict = None
    if ratio.differs and better is not None:
        verdict = (ratio.ratio < 1) == (better == "less")
    note = ""
    if ratio.low is not None and ratio.high is not None:
        note = f"{_times(ratio.low)}–{_times(ratio.high)}"
    return Cell(f"{_times(ratio.ratio)}×", note, verdict)


def _times(value: float) -> str:
    """Two digits after the point: a ratio is read beside 1."""
    return f"{value:.2f}" if 0.1 <= value < 10 else figure(value)


def _outcome_row(of: Outcome) -> tuple[Cell, ...]:
    verdict = {"crossed": False, "unknown": False, "kept": True}.get(of.standing)
    return Cell(of.threshold), Cell(_STANDING[of.standing], verdict=verdict), Cell(of.told)


def comparison_json(of: Comparison) -> bytes:
    """As a JSON object; ratios are [ratio, low, high]."""
    return msgspec.json.format(msgspec.json.encode(of), indent=1) + b"\n"
