"""The marks by which tests say what they show of a kind of weights, collected from all tests.

    @pytest.mark.proves("read", "gguf-py's dequantize, every bit", of="name")
    @pytest.mark.parametrize("name", CODECS)

A test that carries the mark shows that each kind of its parameter `of`, or each of `kinds`, is
read, run, made or loaded elsewhere, held against what the second word names.
`docs/storage-kinds.md` is made from these marks, so that a cell there is a test here, and a test
that goes takes its cell along.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

MARK = "proves"
COLUMNS = ("read", "run", "made", "elsewhere")
TESTS = Path(__file__).resolve().parent


class Proof(NamedTuple):
    """A test that shows one thing of one kind."""

    column: str
    """One of COLUMNS."""
    group: str
    """What the kinds of the test are of: "GGUF", or the width of a folder's."""
    kind: str
    against: str
    """What the test compares with."""
    test: str
    """Path in the repository, and name."""


def proofs() -> Iterator[Proof]:
    """Every proof of every test, in the order of the files."""
    for path in sorted(TESTS.rglob("test_*.py")):
        if f"mark.{MARK}(" in path.read_text(encoding="utf-8"):
            place = path.relative_to(TESTS.parent)
            module = importlib.import_module(".".join(place.with_suffix("").parts))
            yield from _proofs_of(module, place)


def _proofs_of(module: ModuleType, place: Path) -> Iterator[Proof]:
    for name, function in vars(module).items():
        if not name.startswith("test_") or function.__module__ != module.__name__:
            continue
        marks: Sequence[pytest.Mark] = getattr(function, "pytestmark", [])
        for mark in marks:
            if mark.name != MARK:
                continue
            column, against = mark.args
            if column not in COLUMNS:
                raise ValueError(f"{place}: {name} proves {column!r}, which is none of {COLUMNS}")
            for kind in mark.kwargs.get("kinds") or _values(marks, mark.kwargs["of"]):
                but = mark.kwargs.get("but", {})
                group = mark.kwargs.get("group", "GGUF")
                at = f"{place.as_posix()}::{name}"
                yield Proof(column, group, kind, but.get(kind, against), at)


def _values(marks: Sequence[pytest.Mark], parameter: str) -> Iterator[Any]:
    """The values that a test is parametrised with under this name."""
    for mark in marks:
        if mark.name != "parametrize":
            continue
        names, values = mark.args[:2]
        names = names.replace(" ", "").split(",") if isinstance(names, str) else list(names)
        if parameter in names:
            for value in values:
                row = getattr(value, "values", value)
                yield row if isinstance(row, str) else row[names.index(parameter)]
            return
    raise ValueError(f"no parameter {parameter!r} beside the mark {MARK!r}")
