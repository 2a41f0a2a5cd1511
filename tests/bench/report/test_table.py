"""The summary for a terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console, RenderableType

from headrace.bench.cost import Prices
from headrace.bench.record import ClientHealth, Failure, Usage
from headrace.bench.report.latency_sheet import latencies
from headrace.bench.report.sheet import cost, errors, requests
from headrace.bench.report.table import printable, sheet_table, summary_table
from headrace.bench.slo import parse_slo
from headrace.bench.summary import Summary, summarize
from headrace.page.figures import share
from headrace.page.sheet import Sheet
from tests.bench.report.synthetic import simulated
from tests.bench.streams import run, steady, stream

MADE = simulated(requests=120, failing=0.1, metrics=False)


def shown(what: RenderableType, width: int = 130) -> str:
    file = io.StringIO()
    Console(file=file, width=width, color_system=None).print(what)
    return file.getvalue()


def cell_of(sheet: Sheet, name: str, column: str) -> str:
    row = next(row for row in sheet.rows if row[0].text == name)
    return row[sheet.columns.index(column)].text


def test_every_part_is_there() -> None:
    summary = summarize(MADE, slo=parse_slo("ttft:500 itl:p95<50ms"))
    text = shown(summary_table(summary))
    for part in ("Latency, by headrace", "Rates", "Requests", "Goodput under", "Tokens"):
        assert part in text
    assert "The client was not the limit" in text
    assert "tpot       (last such chunk − first)" in text, "definitions stand below"
    assert "error: http" in text and "status of failed requests: 429" in text
    assert "…" not in text, "nothing is cut off at this width"


def test_a_cost_that_is_unknown_is_told_with_its_reason() -> None:
    half = shown(summary_table(summarize(MADE, prices=Prices(output_usd=8))))
    assert re.search(r"the run +unknown", half)
    assert "Unknown: the price of input is unknown: give --price-input." in half
    assert "third line" not in half, "there is none"
    whole = shown(summary_table(summarize(MADE, prices=Prices(input_usd=1, output_usd=8))))
    assert "unknown" not in whole.lower() and "third line" in whole
    assert "Cost" not in shown(summary_table(summarize(MADE))), "nobody asked"


@pytest.mark.parametrize("width", [80, 130])
def test_the_share_of_good_requests_has_its_interval(width: int) -> None:
    summary = summarize(MADE, slo=parse_slo("ttft:500"))
    assert summary.goodput is not None and summary.goodput.fraction_interval is not None
    of = summary.goodput.fraction_interval
    text = " ".join(shown(summary_table(summary), width).split())
    if width < 100:  # beside each other, lines of two tables are mixed
        assert f"the true share {share(of.low)} to {share(of.high)} with 95% confidence" in text
    assert share(of.low) in text and share(of.high) in text


def test_figures_are_those_of_the_summary() -> None:
    summary = summarize(run(steady(3, 100, 50, index=0), steady(3, 200, 50, index=1)))
    sheet = latencies(summary)
    assert cell_of(sheet, "ttft", "p50") == "150" and cell_of(sheet, "ttft", "most") == "200"
    assert cell_of(sheet, "ttft", "p99") == "199*", "marked: two samples"
    assert cell_of(sheet, "tps_user", "unit") == "tokens/s"


def test_both_clocks_only_where_they_differ() -> None:
    on_time = latencies(summarize(run(steady(3, 100, 50))))
    assert [row[1].text for row in on_time.rows if row[0].text == "ttft"] == [""]
    late = latencies(summarize(run(steady(3, 100, 50, start_ms=50, intended_ms=0))))
    assert [row[1].text for row in late.rows if row[0].text == "ttft"] == ["intended", "sent"]
    assert [row[1].text for row in late.rows if row[0].text == "tpot"] == [""]


def test_a_lag_that_nobody_could_notice_makes_no_second_row() -> None:
    def clocks(first_ms: float, lag_ms: float) -> list[str]:
        of = steady(3, first_ms, 50, start_ms=lag_ms, intended_ms=0)
        return [row[1].text for row in latencies(summarize(run(of))).rows if row[0].text == "ttft"]

    assert clocks(100, 0.3) == clocks(1000, 4.9) == [""]
    assert clocks(1000, 5.1) == ["intended", "sent"]
    assert clocks(2, 0.3) == ["intended", "sent"], "more than a tenth of it"


def test_what_the_server_said_is_a_table() -> None:
    text = shown(summary_table(summarize(simulated(requests=60, rate=6))))
    for part in ("Server, as it reports", "MBU", "MFU", "KV blocks in use, maximum", "preemptions"):
        assert part in text


def test_a_known_price_tells_who_says_so() -> None:
    told = Usage(prompt_tokens=10, completion_tokens=3)
    prices = Prices(input_usd=1, output_usd=2, source="catalog, x (y, as of 2026-01-01)")
    summary = summarize(run(steady(3, 10, 10, usage=told)), prices=prices)
    text = " ".join(shown(sheet_table(cost(summary))).split())
    assert "Prices: catalog, x (y, as of 2026-01-01)." in text


@pytest.mark.parametrize("definition", ["vllm", "llmperf"])
def test_under_other_definitions(definition: str) -> None:
    from headrace.bench.definitions import DEFINITIONS

    summary = summarize(MADE, definition=DEFINITIONS[definition])
    text = shown(summary_table(summary))
    assert f"Latency, by {definition}" in text and summary.table[0].counts[:30] in text


def test_a_client_that_was_the_limit_is_told() -> None:
    busy = ClientHealth(schedule_lag_ns=(900_000_000,) * 9, loop_lag_ns=(), cpu_share=(0.99,))
    text = shown(summary_table(summarize(run(steady(3, 10, 10), health=busy))))
    assert "The client was the limit: its requests left late" in text


def test_a_run_without_any_answer() -> None:
    refused = stream(sent_ms=None, failure=Failure("connect", "refused"))
    summary = summarize(run(refused))
    assert "error: connect" in shown(summary_table(summary))
    assert cell_of(requests(summary), "failed", "requests") == "1"
    assert "measured" in shown(summary_table(summarize(run())))


def test_messages_cannot_command_the_terminal() -> None:
    hostile = "\x1b[2J\x9b31m[red]x[/red]\r\n\u202e"
    record = stream(sent_ms=None, failure=Failure("http", hostile), status=503)
    text = shown(sheet_table(errors([record])))
    assert not set("\x1b\x9b\r\u202e") & set(text)
    assert "[red]x[/red]" in text, "shown as it is, not as markup of rich"
    assert printable("a\x00b") == "a�b"


def test_errors_are_counted_by_what_they_say() -> None:
    records = [stream(sent_ms=None, failure=Failure("http", f"m{i % 30}")) for i in range(75)]
    sheet = errors(records)
    assert len(sheet.rows) == 20 and sheet.rows[0][3].text == "3"
    assert "10 more messages" in sheet.notes[0]


def lines(summary: Summary, width: int) -> list[str]:
    return [line.rstrip() for line in shown(summary_table(summary), width).splitlines()]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("times", [1, 900])
def test_nothing_is_cut_off_or_too_wide(width: int, times: int) -> None:
    """Where answers take minutes, too."""
    slow = simulated(requests=60, rate=6, gap_ms=14 * times, metrics=False)
    told = lines(summarize(slow, slo=parse_slo("ttft:500")), width)
    assert max(map(len, told)) <= width
    assert not any("…" in line for line in told)
    for name in ("ttft", "tpot_incl", "itl_chunk", "tps_user"):
        assert any(line.split()[:1] == [name] or f"{name}," in line for line in told)


def test_a_narrow_terminal_has_one_line_a_metric() -> None:
    summary = summarize(MADE)
    narrow, wide = lines(summary, 80), lines(summary, 120)
    assert narrow[0].startswith("Latency in milliseconds, by headrace")
    assert "95% intervals: in a wider terminal" in "\n".join(narrow)
    assert wide[0].startswith("Latency, by headrace")
    assert any(line.startswith("Rates") and "Requests" in line for line in wide), "side by side"
    ttft = next(at for at, line in enumerate(narrow) if line.split()[:1] == ["ttft"])
    assert narrow[ttft + 1].split()[0] in ("ttft", "ttfot")


def test_minutes_are_in_seconds_where_there_is_little_room() -> None:
    slow = simulated(requests=60, rate=6, gap_ms=14_000, metrics=False)
    assert lines(summarize(slow), 80)[0].startswith("Latency in seconds, by headrace")
