"""What a run of the tests ends with: tests and seconds by part, skipped tests by reason."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest

from tests.tiers import MARKS

LEAST_ROWS = 2


@dataclass
class Part:
    """The tests of one folder of tests/, or of one marker: how many, and what they took."""

    tests: int = 0
    wall_s: float = 0.0
    """Seconds of set-up, call and tear-down, as a clock on the wall counts them."""
    cpu_s: float = 0.0
    """CPU seconds of the calls, processes that tests start included."""


def part_of(nodeid: str) -> str:
    """The folder of tests/ that a test is in; `tests` for the modules beside the folders."""
    parts = nodeid.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 else "tests"


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Why something was skipped, in the words of whoever skipped it, without its paths."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return re.sub(r" \(.*\)$", "", text.removeprefix("Skipped: ").strip())


class RunSummary:
    """The pytest plugin that adds up reports and prints two tables at the end."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = defaultdict(Part)
        self._markers: dict[str, Part] = defaultdict(Part)
        self._skips: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test."""
        # Not of the keywords: among those are names of folders, and one is called "load".
        properties = dict(report.user_properties)
        marks, used_s = str(properties.get(MARKS, "")).split(), properties.get("cpu_s")
        for part in (
            self._parts[part_of(report.nodeid)],
            *(self._markers[name] for name in marks),
        ):
            part.wall_s += report.duration
            if report.when == "call":
                part.tests += 1
                part.cpu_s += used_s if isinstance(used_s, float) else 0.0
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skips[skip_reason(report)] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a module that is skipped as a whole."""
        if report.skipped:
            self._skips[f"{skip_reason(report)} [a whole module]"] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the tables; none for a run of a test or two."""
        if len(self._parts) >= LEAST_ROWS:
            terminalreporter.section("by part: tests, seconds, CPU seconds of the calls")
            for table in (self._parts, self._markers):
                for name, part in sorted(table.items(), key=lambda row: -row[1].wall_s):
                    terminalreporter.write_line(
                        f"{name:<12} {part.tests:>7,} {part.wall_s:>8.1f} {part.cpu_s:>8.1f}"
                    )
                terminalreporter.write_line("")
        if self._skips:
            terminalreporter.section("skipped, by reason")
            for reason, count in self._skips.most_common():
                terminalreporter.write_line(f"{count:>6} {reason}")
