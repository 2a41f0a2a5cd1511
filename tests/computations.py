"""The marks by which tests say which backend they show to compute a kind, collected from all tests.

    @pytest.mark.computes("products", "cpu", "bound", kinds=CODECS)

A test that carries the mark shows that the backend computes this with each kind: "bits", every bit
is that of an independent definition, or "bound", within what rounding may change. The tables of
docs/gpu.md are made from these marks (`python -m tools.backend_kinds`), so that a cell there is a
test here. Kernels of torch are interpreted by files of their own, whose marks count too.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

MARK = "computes"
SUBJECTS = ("products", "experts", "K and V")
BACKENDS = ("reference", "cpu", "torch", "triton")
MEASURES = ("bits", "bound")
TESTS = Path(__file__).resolve().parent


class Computation(NamedTuple):
    """A kind that a backend is shown to compute with."""

    subject: str
    """One of SUBJECTS."""
    backend: str
    """One of BACKENDS; triton is the kernels of torch."""
    measure: str
    """One of MEASURES."""
    kind: str
    test: str
    """Path in the repository, and name."""


def computations() -> Iterator[Computation]:
    """Every one of every test, in the order of the files; needs PyTorch and Triton."""
    files = [*TESTS.rglob("test_*.py"), *TESTS.rglob("*_interpreted.py")]
    for path in sorted(files):
        if f"mark.{MARK}(" in path.read_text(encoding="utf-8"):
            place = path.relative_to(TESTS.parent)
            module = importlib.import_module(".".join(place.with_suffix("").parts))
            yield from computations_of(module, place)


def computations_of(module: ModuleType, place: Path) -> Iterator[Computation]:
    """Those of a module's own tests. Raises ValueError for a mark that means nothing."""
    for name, function in vars(module).items():
        if not name.startswith("test_") or function.__module__ != module.__name__:
            continue
        for mark in getattr(function, "pytestmark", []):
            if mark.name != MARK:
                continue
            subject, backend, measure = mark.args
            for given, known in ((subject, SUBJECTS), (backend, BACKENDS), (measure, MEASURES)):
                if given not in known:
                    raise ValueError(f"{place}: {name} computes {given!r}, none of {known}")
            for kind in mark.kwargs["kinds"]:
                yield Computation(subject, backend, measure, kind, f"{place.as_posix()}::{name}")


def of_pairs(pairs: tuple[tuple[str, str], ...]) -> list[str]:
    """The kinds of K and V that cases of both have."""
    return sorted({kind for pair in pairs for kind in pair})
