"""docs/compatibility.md: every test of ours it names exists, rows without one say so, and its
counts are right."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGE = (TESTS.parent / "docs" / "compatibility.md").read_text(encoding="utf-8")
KINDS = ("same", "adapted", "differs", "not yet")
PEERS = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama-server"}
_FILE = re.compile(r"`[\w/]*test_\w+\.py`")
NO_TEST = "(no test)"
_NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")


@cache
def functions(file: str) -> frozenset[str]:
    """Names of the functions of a file below tests/, none where there is no such file."""
    path = TESTS / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def part(mark: str) -> str:
    found = re.search(rf"<!-- {mark} -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    assert found is not None, f"docs/compatibility.md has no part {mark}"
    return found[1]


def rows(mark: str) -> list[list[str]]:
    """Cells of each row that is about a behaviour."""
    lines = [line for line in part(mark).splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] != "It checks"]


def test_every_test_that_is_named_exists() -> None:
    named = _NAMED.findall(PAGE)
    assert len(named) == PAGE.count("::")
    missing = [f"{file}::{name}" for file, name in named if name not in functions(file)]
    assert not missing


@pytest.mark.parametrize("mark", PEERS)
def test_every_row_says_what_holds_and_shows_it_or_says_why(mark: str) -> None:
    for row in rows(mark):
        assert len(row) == 3, row
        checks, kind, shown = row
        assert kind in KINDS, row
        reason = re.sub(r"[\s,:;]+", " ", _NAMED.sub("", shown.removesuffix(NO_TEST))).strip()
        shows = _NAMED.search(shown) is not None
        if kind in ("same", "adapted"):
            assert shows, f"no test is named for: {checks}"
        assert shows is not shown.endswith(NO_TEST), f"does this row name a test? {checks}"
        if kind != "same":
            assert reason, f"no reason is given for: {checks}"


def test_the_counts_are_those_of_the_rows() -> None:
    for mark, name in PEERS.items():
        kinds = Counter(row[1] for row in rows(mark))
        # A line that begins with a file is the head of a table.
        heads = [line for line in part(mark).splitlines() if _FILE.match(line)]
        files = sum(len(_FILE.findall(line)) for line in heads)
        numbers = [files, sum(kinds.values()), *(kinds[kind] for kind in KINDS)]
        assert f"| {name} | {' | '.join(map(str, numbers))} |" in part("counts")
