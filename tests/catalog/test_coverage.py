"""The coverage of the background documents: no empty cell, and nothing claimed without a test.

What runs may only grow: `coverage_runs.toml` beside this file lists every item that runs.
"""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from headrace.catalog import Catalog
from headrace.catalog.coverage import (
    ANSWERS,
    DOES,
    Coverage,
    count_does,
    faults,
    load_coverage,
    summary,
)
from headrace.cli.main import cli
from headrace.errors import CatalogError

ROOT = Path(__file__).resolve().parents[2]
RUNS = Path(__file__).with_name("coverage_runs.toml")
ONE = """
[[document]]
id = "guide"
prefix = "g"
lines = 9
sha256 = "0"

[evidence]
batches = "tests/engine/test_core.py"
lint = "headrace plan lint"

[items]
guide = [
  { id = "g-1", kind = "section", name = "begin", topic = "metrics", does = "knows", rows = ["h100-sxm"] },
  { id = "g-2", last = 4, kind = "pitfall", name = "batch of one", does = "part", by = ["batches"], missing = "two", test = "tests/x.py" },
  { id = "g-5", kind = "text", name = "checked", topic = "pitfalls", does = "plans", by = ["lint"], command = "headrace plan lint" },
  { id = "g-6", kind = "text", name = "wrong", does = "rejected", rejected = "no" },
]
"""  # noqa: E501


@pytest.fixture(scope="module")
def coverage() -> Coverage:
    return load_coverage()


def test_rows_and_contradictions_are_there(coverage: Coverage) -> None:
    assert faults(coverage, Catalog.load()) == []


def test_unknown_rows_and_contradictions_are_told(tmp_path: Path) -> None:
    text = ONE.replace("h100-sxm", "h101").replace(
        'rejected = "no"', 'rejected = "no", contradiction = "C99"'
    )
    found = faults(_load(tmp_path, text), Catalog.load())
    assert found == ["g-1: no row 'h101'", "g-6: no contradiction 'C99'"]


def test_commands_are_there(coverage: Coverage) -> None:
    commands = {item.command for item in coverage.items if item.command}
    assert commands
    assert [command for command in commands if not _exists(command)] == []


def test_tests_are_there(coverage: Coverage) -> None:
    for item in coverage.items:
        if item.test:
            assert _is_test(item.test), f"{item.id}: no {item.test}"


def test_evidence_is_there_and_used(coverage: Coverage) -> None:
    """A test by its file or function, a command with its options; none that no item names."""
    named = {shown_by for item in coverage.items for shown_by in item.by}
    for name, shown_by in coverage.evidence.items():
        there = _is_test(shown_by) if shown_by.startswith("tests/") else _exists(shown_by)
        assert there, f"evidence {name}: no {shown_by}; correct it in coverage.toml"
        assert shown_by in named, f"evidence {name}: no item names it"
    assert len(set(coverage.evidence.values())) == len(coverage.evidence)


def test_plans_are_shown_by_plan_and_what_runs_by_more(coverage: Coverage) -> None:
    for item in coverage.items:
        of_plan = [shown_by for shown_by in item.by if _is_of_plan(shown_by)]
        if item.does == "plans":
            assert of_plan == list(item.by), f"{item.id}: plans, shown by {item.by}"
        elif item.by:
            assert of_plan != list(item.by), f"{item.id}: {item.does}, shown by plan alone"


def test_what_runs_only_grows(coverage: Coverage) -> None:
    """An item that ran runs; one that has begun to run is written down."""
    recorded = tomllib.loads(RUNS.read_text(encoding="utf-8"))
    runs = {
        name: [item.id for item in coverage.of(name) if item.does == "runs"]
        for name, document in coverage.documents.items()
        if not document.repeats
    }
    for name, ids in runs.items():
        lost = [item_id for item_id in recorded[name] if item_id not in ids]
        assert not lost, (
            f"{name}: {', '.join(lost)} ran, and coverage.toml no longer says so; mend what broke. "
            f"Only where the claim was wrong, take them out of {RUNS.name} and say why"
        )
        new = [item_id for item_id in ids if item_id not in recorded[name]]
        assert not new, f"{name}: {', '.join(new)} run now: add them to {RUNS.relative_to(ROOT)}"
    assert set(recorded) == set(runs)


def test_every_item_has_a_topic_of_several(coverage: Coverage) -> None:
    topics = coverage.topics()
    assert 20 <= len(topics) <= 30
    assert sum(len(items) for items in topics.values()) == len(coverage.items)
    assert min(len(items) for items in topics.values()) > 1


def test_the_summary_has_the_five_counts(coverage: Coverage) -> None:
    counts = count_does(coverage.items)
    assert sum(counts.values()) == len(coverage.items)
    wanted = dict(zip(DOES, (3, 5, 7, 11, 13), strict=True))
    items = [
        next(item for item in coverage.items if item.does == does)
        for does, count in wanted.items()
        for _ in range(count)
    ]
    assert summary(items) == (
        "Of 39 items of the guides behind the catalog headrace runs 3, runs 5 in part, plans 7, "
        "only knows 11 and rejects 13."
    )


HEADINGS = """
[[document]]
id = "guide"
prefix = "g"
lines = 9
sha256 = "0"

[evidence]
batches = "tests/engine/test_core.py"

[items]
guide = [
  { id = "g-1", kind = "section", name = "a", topic = "metrics", does = "HEAD", by = ["batches"], rows = ["x"] },
  { id = "g-2", kind = "table", name = "b", does = "TABLE", by = ["batches"], rows = ["x"] },
  { id = "g-3", kind = "table row", name = "c", does = "part", missing = "d", by = ["batches"], rows = ["x"] },
  { id = "g-4", kind = "section", name = "e", does = "runs", by = ["batches"], rows = ["x"] },
]
"""  # noqa: E501


@pytest.mark.parametrize(
    ("head", "table", "named"),
    [("runs", "part", "g-1"), ("part", "runs", "g-2"), ("part", "part", None)],
)
def test_a_heading_does_not_run_where_an_item_under_it_is_in_part(
    tmp_path: Path, head: str, table: str, named: str | None
) -> None:
    text = HEADINGS
    for word, does in (("HEAD", head), ("TABLE", table)):
        missing = ', missing = "d"' if does == "part" else ""
        text = text.replace(f'"{word}"', f'"{does}"{missing}')
    if named is None:
        assert len(_load(tmp_path, text).items) == 4
        return
    with pytest.raises(
        CatalogError, match=f"item '{named}': runs, and g-[23] under it only in part"
    ):
        _load(tmp_path, text)


def test_a_command_that_is_not_there_is_seen() -> None:
    assert _exists("headrace catalog list model")
    assert _exists("headrace plan speed --draft-model")
    assert not _exists("headrace plan speed --draft-modle")
    assert not _exists("headrace plan --draft-model")
    assert not _exists("headrace catalog list modle")
    assert not _exists("headrace catalogue")
    assert not _exists("catalog list")


def test_ids_and_names(coverage: Coverage) -> None:
    ids = [one.id for one in coverage.items]
    assert len(set(ids)) == len(ids) > 800
    for one in coverage.items:
        assert len(one.name) <= 60, one.id
        assert one.section, f"{one.id} is under no heading"


def test_a_test_that_is_not_there_is_seen() -> None:
    assert _is_test("tests/catalog/test_coverage.py")
    assert _is_test("tests/catalog/test_coverage.py::test_commands_are_there")
    assert not _is_test("tests/catalog/test_coverage.py::coverage")
    assert not _is_test("tests/catalog/test_coverage.py::test_gone")
    assert not _is_test("tests/catalog/files.py")
    assert not _is_test("tests/catalog/test_gone.py")


def test_counts_add_up(coverage: Coverage) -> None:
    for name in coverage.documents:
        total = len(coverage.of(name))
        assert total > 0
        assert sum(coverage.kinds_of(name).values()) == total
        assert sum(coverage.answers_of(name).values()) == total
        assert sum(count_does(coverage.of(name)).values()) == total
    own = [name for name, document in coverage.documents.items() if not document.repeats]
    assert sum(len(coverage.of(name)) for name in own) == len(coverage.items)


def test_an_item_as_it_is_written(tmp_path: Path) -> None:
    first, second, third, fourth = _load(tmp_path, ONE).items
    assert (first.answer, first.does, first.first, first.last) == ("rows", "knows", 1, 1)
    assert (second.answer, second.does, second.first, second.last) == ("test", "part", 2, 4)
    assert (second.document, second.section, second.topic) == ("guide", "begin", "metrics")
    assert (second.by, second.missing) == (("tests/engine/test_core.py",), "two")
    assert (third.topic, third.by) == ("pitfalls", ("headrace plan lint",))
    assert (fourth.topic, fourth.by, fourth.answer) == ("metrics", (), "rejected")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (', test = "tests/x.py"', "", "has no answer"),
        (', test = "tests/x.py"', ', test = ""', "has no answer"),
        ('rows = ["h100-sxm"]', "rows = []", "has no answer"),
        ('rows = ["h100-sxm"]', 'rows = ["h100-sxm"], test = "tests/x.py"', "rows and test"),
        ('test = "tests/x.py"', 'test = "x", contradiction = "C01"', "goes with rejected"),
        ('does = "rejected", ', 'does = "knows", ', "the reason in rejected go together"),
        ('rejected = "no"', 'test = "no"', "the reason in rejected go together"),
        ('missing = "two", ', "", "what is missing go together"),
        ('does = "part"', 'does = "runs"', "what is missing go together"),
        ('by = ["lint"], ', "", "runs, part and plans name their evidence"),
        ('does = "plans"', 'does = "knows"', "knows and rejected have none"),
        ('by = ["lint"]', 'by = ["lnt"]', "no evidence 'lnt'; did you mean 'lint'?"),
        ('does = "plans"', 'does = "planned"', "Invalid enum value 'planned'"),
        ('= "headrace plan lint"\n', '= "plan lint"\n', "or headrace COMMAND"),
        ('topic = "metrics", ', "", "has no topic"),
        ('name = "begin"', 'name = " "', "has no name"),
        ('kind = "pitfall"', 'kind = "trap"', "Invalid enum value 'trap'"),
        ('id = "g-2"', 'id = "h-2"', "the id is g- and its first line"),
        ('id = "g-2"', 'id = "g-x"', "the id is g- and its first line"),
        ('id = "g-2"', 'id = "g-1"', "no two items share a line"),
        ("last = 4", "last = 1", "no two items share a line"),
        ("last = 4", "last = 10", "end at 9"),
        ("last = 4", "lst = 4", "unknown field `lst`"),
        ("guide = [", "guides = [", "no document with items has that id"),
        ("[items]", "[item]", "unknown table 'item'"),
        ("lines = 9", "lines = 9 9", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert ONE.count(old) == 1
    with pytest.raises(CatalogError) as caught:
        _load(tmp_path, ONE.replace(old, new))
    assert message in str(caught.value)
    assert "coverage.toml" in str(caught.value)


def test_the_values_are_those_of_the_command() -> None:
    command: Any = cli
    for name in ("catalog", "coverage"):
        command = command.get_command(click.Context(command), name)
    [option] = [option for option in command.params if option.name == "does"]
    assert tuple(option.type.choices) == DOES
    assert set(ANSWERS) == {"rows", "command", "test", "rejected"}


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="No such file"):
        load_coverage(tmp_path / "none.toml")


def _load(folder: Path, text: str) -> Coverage:
    path = folder / "coverage.toml"
    path.write_text(text, encoding="utf-8")
    return load_coverage(path)


def _is_of_plan(shown_by: str) -> bool:
    return shown_by.startswith(("headrace plan ", "tests/plan/", "tests/cli/plan/"))


@cache
def _functions(path: Path) -> frozenset[str]:
    """Names of the functions at the top of a file and in its classes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def _is_test(text: str) -> bool:
    """Whether `tests/FILE` or `tests/FILE::FUNCTION` is a test that there is."""
    name, _, function = text.partition("::")
    path = ROOT / name
    if not name.startswith("tests/") or not path.name.startswith("test_") or not path.is_file():
        return False
    return not function or (function.startswith("test_") and function in _functions(path))


def _exists(line: str) -> bool:
    """Whether `headrace …` names a command, and its further words are arguments or options of it.

    Options stand without values, so they are only looked up.
    """
    name, *words = line.split()
    command: Any = cli
    context = click.Context(cli, info_name=name)
    while isinstance(command, click.Group) and words:
        command = command.get_command(context, words.pop(0))
    if name != "headrace" or command is None:
        return False
    options = [word for word in words if word.startswith("-")]
    known = {option for parameter in command.params for option in parameter.opts}
    arguments = [word for word in words if not word.startswith("-")]
    try:
        if arguments:
            command.make_context(name, arguments)
    except click.UsageError:
        return False
    return set(options) <= known
