"""The page and the terminal's table: whole, harmless, and the same figures."""

from __future__ import annotations

import io
import re
from datetime import UTC
from pathlib import Path

from rich.console import Console

from headrace.bench.providers import tables
from headrace.bench.providers.figures import Matrix, matrix
from headrace.bench.providers.page import providers_page
from headrace.bench.providers.read_store import read_store
from headrace.bench.providers.round_plot import ClockScale, Place, over_rounds
from headrace.bench.providers.terminal import matrix_table, parts
from headrace.page.plots.frame import Key
from tests.bench.providers.made import START, Fares, file, fill, priced, provider


def made(path: Path, rounds: int = 6) -> Matrix:
    hostile = provider("<script>alert(1)</script>", notes="\x1b[2J</td>", region="eu")
    of = file(hostile, priced("b", 4.0), single_requests=2, batch_size=2)
    fares = {hostile.name: Fares(100, 10, failing=frozenset({2})), "b": Fares(50, 5)}
    fill(path, of, fares, rounds)
    return matrix(read_store(path))


def test_the_page_has_all_and_loads_nothing(tmp_path: Path) -> None:
    text = providers_page(made(tmp_path / "p.db"), zone=UTC)
    assert text.count("<script") == 1
    assert "&lt;script&gt;alert(1)" in text
    assert not re.search(r"(?:src|href)=|url\(|@import|https?://(?!127\.0\.0\.1:9/)", text)
    assert "6 rounds, 2026-09-21 14:13 to 15:03 UTC" in text
    for title in ("TTFT", "TPS of one stream", "TPS of 2", "E2E latency"):
        assert f"<h3>{title}</h3>" in text
    assert "Sequential against parallel" in text
    assert text.count("<figure") == 4


def test_cells_are_sorted_by_numbers_and_not_by_words(tmp_path: Path) -> None:
    text = providers_page(made(tmp_path / "p.db"), zone=UTC)
    rows = re.findall(r"<tr><td data-v=.*?</tr>", text)
    assert len(rows) == 2
    keys = [re.findall(r'data-v="([^"]*)"', one) for one in rows]
    assert [row[1] for row in keys] == ["100", "50"]
    assert [row[7] for row in keys] == ["0.833333333", "1"]
    # Who has no price has no key, and stays last.
    assert [row[8:10] for row in keys] == [["", ""], ["1", "4"]]
    assert all(len(row) == 11 for row in keys)


def test_a_page_of_one_round_and_of_none(tmp_path: Path) -> None:
    assert "<figure" not in providers_page(made(tmp_path / "one.db", rounds=1))
    path = tmp_path / "none.db"
    fill(path, file(provider("a")), {"a": Fares(1, 1)}, 0)
    assert "nothing has been measured yet" in providers_page(matrix(read_store(path)))


def test_lines_break_where_a_round_failed() -> None:
    values = (1.0, 2.0, None, 4.0, 5.0)
    places = [
        Place(at=START + at, value=value, failed=value is None, told="")
        for at, value in enumerate(values)
    ]
    plot = over_rounds("TTFT", [(Key("a", "c1"), places)], zone=UTC, y_title="", y_label=str)
    assert plot is not None
    assert plot.svg.count('class="curve"') == 2
    assert plot.svg.count("<circle") == 4
    assert "requests failed" in plot.svg


def test_ticks_are_whole_hours_of_the_wall() -> None:
    scale = ClockScale(START, START + 6 * 3600, 0, 100, zone=UTC)
    assert [scale.label(at) for at in scale.ticks(6)] == [
        *("15:00", "16:00", "17:00", "18:00", "19:00", "20:00")
    ]
    days = ClockScale(START, START + 12 * 86_400, 0, 100, zone=UTC)
    assert days.label(days.ticks(6)[0]) == "09-22"
    short = ClockScale(START, START + 40, 0, 100, zone=UTC)
    assert [short.label(at) for at in short.ticks(6)][:2] == ["14:13:20", "14:13:30"]


def test_the_terminal_shows_the_same_and_no_control_characters(tmp_path: Path) -> None:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(matrix_table(made(tmp_path / "p.db"), width=140, zone=UTC))
    text = console.export_text()
    assert "\x1b" not in text
    for word in ("100 ms", "50 ms", "TPS of 2", "$4.00", "5 of 6", "HTTP 503", "eu"):
        assert word in text


def test_a_narrow_terminal_gets_parts_that_lose_nothing(tmp_path: Path) -> None:
    whole = tables.side_by_side(made(tmp_path / "p.db"))
    assert parts(whole, 200) == [whole]
    narrow = parts(whole, 78)
    assert len(narrow) > 1
    assert [one for part in narrow for one in part.columns[1:]] == list(whole.columns[1:])
    cells = [cell for part in narrow for cell in part.rows[0][1:]]
    assert cells == list(whole.rows[0][1:])
    assert [part.rows[0][0].text for part in narrow] == [whole.rows[0][0].text] * len(narrow)
    assert narrow[-1].notes == whole.notes
    console = Console(width=78, record=True, file=io.StringIO())
    console.print(matrix_table(made(tmp_path / "q.db"), width=78, zone=UTC))
    assert "…" not in console.export_text()
