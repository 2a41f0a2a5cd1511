"""The coverage of the background documents: no empty cell, no answer that leads nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from headrace.catalog import Catalog
from headrace.catalog.coverage import FILE, Coverage, faults, load_coverage
from headrace.cli.main import cli
from headrace.errors import CatalogError

ROOT = Path(__file__).resolve().parents[2]
ONE = """
[[document]]
id = "guide"
prefix = "g"
lines = 9
sha256 = "0"

[[work]]
name = "plan lint"
command = "headrace plan lint"
does = "checks"

[items]
guide = [
  { id = "g-1", kind = "section", name = "begin", rows = ["h100-sxm"] },
  { id = "g-2", last = 4, kind = "pitfall", name = "batch of one", waits_for = "plan lint" },
]
"""


@pytest.fixture(scope="module")
def coverage() -> Coverage:
    return load_coverage()


def test_rows_and_contradictions_are_there(coverage: Coverage) -> None:
    assert faults(coverage, Catalog.load()) == []


def test_unknown_rows_and_contradictions_are_told(tmp_path: Path) -> None:
    text = ONE.replace("h100-sxm", "h101").replace(
        'waits_for = "plan lint"', 'rejected = "no", contradiction = "C99"'
    )
    said = faults(_load(tmp_path, text), Catalog.load())
    assert said == ["g-1: no row 'h101'", "g-2: no contradiction 'C99'"]


def test_commands_are_there(coverage: Coverage) -> None:
    commands = {one.command for one in coverage.items if one.command}
    assert commands
    assert [command for command in commands if not _exists(command)] == []


def test_tests_are_there(coverage: Coverage) -> None:
    for one in coverage.items:
        if one.test:
            assert one.test.startswith("tests/"), one.id
            assert (ROOT / one.test).is_file(), f"{one.id}: no {one.test}"


def test_nothing_waits_for_what_is_there(coverage: Coverage) -> None:
    """What has been built is no answer any more: its items are answered again."""
    for name, items in coverage.waiting().items():
        assert items, f"nothing waits for {name}; take it from {FILE.name}"
        command = coverage.works[name].command
        assert not _exists(command), f"{command} is there: answer {[one.id for one in items]}"


def test_a_command_that_is_not_there_is_seen() -> None:
    assert _exists("headrace catalog list model")
    assert not _exists("headrace catalog list modle")
    assert not _exists("headrace catalogue")
    assert not _exists("catalog list")


def test_ids_and_names(coverage: Coverage) -> None:
    ids = [one.id for one in coverage.items]
    assert len(set(ids)) == len(ids) > 800
    for one in coverage.items:
        assert len(one.name) <= 60, one.id
        assert one.section, f"{one.id} is under no heading"


def test_counts_add_up(coverage: Coverage) -> None:
    for name in coverage.documents:
        total = len(coverage.of(name))
        assert total > 0
        assert sum(coverage.kinds_of(name).values()) == total
        assert sum(coverage.answers_of(name).values()) == total
    own = [name for name, document in coverage.documents.items() if not document.repeats]
    assert sum(len(coverage.of(name)) for name in own) == len(coverage.items)
    waiting = [one for items in coverage.waiting().values() for one in items]
    assert len(waiting) == sum(one.open for one in coverage.items)


def test_an_item_as_it_is_written(tmp_path: Path) -> None:
    first, second = _load(tmp_path, ONE).items
    assert (first.answer, first.open, first.first, first.last) == ("rows", False, 1, 1)
    assert (second.answer, second.open, second.first, second.last) == ("waits_for", True, 2, 4)
    assert (second.document, second.section) == ("guide", "begin")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (', waits_for = "plan lint"', "", "has no answer"),
        (', waits_for = "plan lint"', ', waits_for = ""', "has no answer"),
        ('rows = ["h100-sxm"]', "rows = []", "has no answer"),
        ('rows = ["h100-sxm"]', 'rows = ["h100-sxm"], test = "tests/x.py"', "rows and test"),
        ('waits_for = "plan lint"', 'waits_for = "plan lnt"', "there are: plan lint"),
        ('waits_for = "plan lint"', 'command = "x", contradiction = "C01"', "goes with rejected"),
        ('name = "begin"', 'name = " "', "has no name"),
        ('kind = "pitfall"', 'kind = "trap"', "Invalid enum value 'trap'"),
        ('id = "g-2"', 'id = "h-2"', "the id is g- and its first line"),
        ('id = "g-2"', 'id = "g-x"', "the id is g- and its first line"),
        ('id = "g-2"', 'id = "g-1"', "no two items share one"),
        ("last = 4", "last = 1", "no two items share one"),
        ("last = 4", "last = 10", "end at 9"),
        ("last = 4", "lst = 4", "unknown field `lst`"),
        ("guide = [", "guides = [", "no document of that id has items"),
        ("[items]", "[item]", "unknown table 'item'"),
        ("lines = 9", "lines = 9 9", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert ONE.count(old) == 1
    with pytest.raises(CatalogError) as caught:
        _load(tmp_path, ONE.replace(old, new))
    assert said in str(caught.value)
    assert "coverage.toml" in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="No such file"):
        load_coverage(tmp_path / "none.toml")


def _load(folder: Path, text: str) -> Coverage:
    path = folder / "coverage.toml"
    path.write_text(text, encoding="utf-8")
    return load_coverage(path)


def _exists(line: str) -> bool:
    """Whether `headrace …` names a command and its further words are arguments it takes."""
    name, *words = line.split()
    command: Any = cli
    context = click.Context(cli, info_name=name)
    while isinstance(command, click.Group) and words:
        command = command.get_command(context, words.pop(0))
    if name != "headrace" or command is None:
        return False
    try:
        if words:
            command.make_context(name, words)
    except click.UsageError:
        return False
    return True
