"""The short summary of a run: the same figures as the long one, in few lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from headrace.bench.definitions import DEFINITIONS
from headrace.bench.report.brief import HEADLINES, BriefSummary, brief_latencies, brief_rates
from headrace.bench.report.table import summary_table
from headrace.bench.slo import parse_slo
from headrace.bench.summary import summarize
from headrace.page.figures import figure
from tests.bench.report.test_table import MADE

SUMMARY = summarize(MADE, slo=parse_slo(["ttft:500 tpot:50"]))


def lines(of: object) -> list[str]:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(of)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_it_is_short_and_has_what_people_read() -> None:
    shown = lines(BriefSummary(SUMMARY))
    text = "\n".join(shown)
    assert len(shown) * 2 < len(lines(summary_table(SUMMARY)))
    for name in (*HEADLINES, "p50", "p90", "p99", "completed", "failed", "error: truncated",
                 "requests/s", "tokens/s", "Goodput under", "--detail: "):  # fmt: skip
        assert name in text, name
    assert "ttfb" not in text and "tpot_incl" not in text


def test_its_figures_are_those_of_the_summary() -> None:
    rows = {row[0].text: row for row in brief_latencies(SUMMARY).rows}
    ttft = SUMMARY.from_sent["ttft"].distribution
    assert [cell.text.rstrip("*") for cell in rows["ttft"][2:]] == [
        figure(value) for value in (ttft.p50, ttft.p90, ttft.p99)
    ]
    rates = {(row[0].text, row[2].text): row[1].text for row in brief_rates(SUMMARY).rows}
    assert rates[("completed", "requests/s")] == figure(SUMMARY.rps)
    assert rates[("output", "tokens/s")] == figure(SUMMARY.tps_system)
    of = SUMMARY.requests
    assert rates[("completed", "requests")] == f"{of.completed} of {of.measured}"
    assert rates[("failed", "requests")].startswith(f"{of.failed} (")


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_definition_shows_the_first_token_and_the_whole(name: str) -> None:
    summary = summarize(MADE, definition=DEFINITIONS[name])
    ours = {row.name: row.canonical or row.name for row in summary.table}
    shown = {ours[row[0].text.partition(",")[0]] for row in brief_latencies(summary).rows}
    assert {"ttft", "e2e"} <= shown
