"""What is stored of a run knows nothing of who sends, measures or reports."""

from __future__ import annotations

import ast

import pytest

from tools.house import SOURCE, imported

BENCH = SOURCE / "bench"


@pytest.mark.parametrize("part", ["record.py", "journal.py", "definitions"])
def test_the_records_import_no_part_that_uses_them(part: str) -> None:
    path = BENCH / part
    known = {"record", "statistics", "definitions", "vllm_form"}
    for file in path.glob("*.py") if path.is_dir() else [path]:
        for name in imported(ast.parse(file.read_text(encoding="utf-8"))):
            if name.startswith("headrace.bench."):
                assert name.split(".")[2] in known, f"{file}: imports {name}"


def test_reports_know_nothing_of_who_loads() -> None:
    """What both need, a series' runs, what a search found and the journal of replies, lies below
    them: `series`, `load_point`, `search_result`, `reply_journal`.
    """
    for file in (BENCH / "report").rglob("*.py"):
        for name in imported(ast.parse(file.read_text(encoding="utf-8"))):
            assert name.split(".")[:3] != ["headrace", "bench", "load"], f"{file}: imports {name}"


@pytest.mark.parametrize(
    "part", ["series.py", "load_point.py", "search_result.py", "reply_journal.py"]
)
def test_what_load_and_report_share_imports_neither(part: str) -> None:
    tree = ast.parse((BENCH / part).read_text(encoding="utf-8"))
    for name in imported(tree):
        assert name.split(".")[2:3] not in (["load"], ["report"]), f"{part}: imports {name}"
