"""Commands that pages and programs name: the programs of benchmarks are there and run as named.

By a path, `benchmarks` is not among what Python finds, so that a program that imports it has to
put the repository there first. By static checks: none of them runs.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from tests.docs.pages import ROOT
from tests.docs.test_pages import PAGES

BY_PATH = re.compile(r"\bpython3? (benchmarks/[\w/]+\.py)\b")
BY_MODULE = re.compile(r"\bpython3? -m (benchmarks(?:\.\w+)+)")
OF_THE_REPOSITORY = {"benchmarks", "tests", "tools", "training"}
"""Packages that are found from the repository's folder alone."""


def paths_in(text: str) -> tuple[set[str], set[str]]:
    """Files that commands of a text run by their paths, and as modules."""
    modules = {module.replace(".", "/") + ".py" for module in BY_MODULE.findall(text)}
    return set(BY_PATH.findall(text)), modules


@cache
def commands() -> Mapping[str, Mapping[str, set[str]]]:
    """Places that name each program, by form ("path", "module") and program."""
    programs = (ROOT / "benchmarks").rglob("*.py")
    found: dict[str, dict[str, set[str]]] = {"path": defaultdict(set), "module": defaultdict(set)}
    for place in [*PAGES, *(ROOT / "models").rglob("*.md"), ROOT / "Makefile", *programs]:
        for form, files in zip(found, paths_in(place.read_text(encoding="utf-8")), strict=True):
            for file in files:
                found[form][file].add(str(place.relative_to(ROOT)))
    return found


def imports_before_the_path(source: str) -> list[str]:
    """Packages of the repository that a program imports before sys.path has its folder."""
    imported: list[str] = []
    for statement in ast.parse(source).body:
        if "sys.path.insert(0, " in ast.unparse(statement):
            break
        imported += names_of(statement)
    return [name for name in imported if name.partition(".")[0] in OF_THE_REPOSITORY]


def names_of(statement: ast.stmt) -> Iterator[str]:
    """Modules that a statement imports, in functions too."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("form", ["path", "module"])
def test_programs_that_commands_name_are_there_and_run(form: str) -> None:
    named = commands()[form]
    assert len(named) > 15
    missing = {file: places for file, places in named.items() if not (ROOT / file).is_file()}
    assert missing == {}
    idle = [file for file in named if "\nif __name__ ==" not in (ROOT / file).read_text()]
    assert idle == []


def test_a_program_run_by_its_path_finds_what_it_imports() -> None:
    lost = {
        file: names
        for file in commands()["path"]
        if (names := imports_before_the_path((ROOT / file).read_text(encoding="utf-8")))
    }
    assert lost == {}, "run as modules, or put the repository on sys.path first"


def test_each_program_is_named_in_one_form() -> None:
    both = commands()["path"].keys() & commands()["module"].keys()
    assert {file: (commands()["path"][file], commands()["module"][file]) for file in both} == {}


def test_commands_are_found() -> None:
    text = "`.venv/bin/python benchmarks/a.py X`, python3 -m benchmarks.b.c --d; benchmarks/e.py"
    assert paths_in(text) == ({"benchmarks/a.py"}, {"benchmarks/b/c.py"})


@pytest.mark.parametrize(
    ("source", "lost"),
    [
        ("import sys\nsys.path.insert(0, 'x')\nfrom benchmarks.a import b\n", []),
        ("import headrace\n", []),
        ("import sys\nfrom benchmarks.a import b\nsys.path.insert(0, 'x')\n", ["benchmarks.a"]),
        ("def main():\n    import tools.b\n", ["tools.b"]),
    ],
)
def test_imports_before_the_path_are_found(source: str, lost: list[str]) -> None:
    assert imports_before_the_path(source) == lost
