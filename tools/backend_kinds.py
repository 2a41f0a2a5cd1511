"""The tables of docs/gpu.md: which backend is shown to compute which kind of weights, K and V.

`python -m tools.backend_kinds` writes them between their marks. Each cell is the mark of a test
(`tests/computations.py`). Needs PyTorch and Triton, which some of the tests import.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from headrace.ops.kv import KV_CODECS
from headrace.weights.codecs import CODECS, F8_E4M3, OF_FOLDERS
from tests.computations import Computation, computations

PAGE = Path(__file__).resolve().parent.parent / "docs" / "gpu.md"
BEGIN, END = "<!-- kinds of backends -->", "<!-- end -->"
WEIGHTS = (
    ("products", "reference"), ("products", "cpu"), ("products", "torch"), ("products", "triton"),
    ("experts", "cpu"), ("experts", "torch"), ("experts", "triton"),
)  # fmt: skip
CACHES = tuple(("K and V", backend) for backend in ("reference", "cpu", "torch", "triton"))
NAMES = {"cpu": "kernels of the CPU", "triton": "kernels of torch"}


def tables(found: Iterable[Computation]) -> str:
    """Both tables, and which tests the cells are."""
    known = list(found)
    lines = [
        *_table("kind of weights", [*CODECS, F8_E4M3.name, *OF_FOLDERS], WEIGHTS, known),
        "",
        *_table("K or V in", list(KV_CODECS), CACHES, known),
        "",
        "*bits*: every bit of an independent definition; *bound*: within what rounding may change; "
        "—: no test shows it. A kind that torch's kernels do not take is decoded by torch. The "
        "tests:",
        "",
        *_tests(known),
    ]
    return "\n".join(lines)


def _table(
    title: str,
    kinds: Sequence[str],
    columns: Sequence[tuple[str, str]],
    found: Sequence[Computation],
) -> Iterator[str]:
    cells: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for one in found:
        cells[one.subject, one.backend, one.kind].add(one.measure)
    yield f"| {title} | " + " | ".join(_heading(*column) for column in columns) + " |"
    yield "|---" * (1 + len(columns)) + "|"
    for kind in kinds:
        shown = (cells[subject, backend, kind] for subject, backend in columns)
        words = ("bits" if "bits" in each else "bound" if each else "—" for each in shown)
        yield f"| {kind} | " + " | ".join(words) + " |"


def _heading(subject: str, backend: str) -> str:
    name = NAMES.get(backend, backend)
    return f"experts, {name}" if subject == "experts" else name


def _tests(found: Sequence[Computation]) -> Iterator[str]:
    tests: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for one in found:
        tests[one.subject, one.backend][one.test] = None
    for column in (*WEIGHTS, *CACHES):
        places = ", ".join(f"`{test}`" for test in tests[column])
        yield f"* {column[0]}, {NAMES.get(column[1], column[1])}: {places}"


def page_with(text: str, made: str) -> str:
    """A page with the tables in their place."""
    before, _, rest = text.partition(BEGIN)
    _, _, behind = rest.partition(END)
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{behind}"


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text("utf-8"), tables(computations())), encoding="utf-8")
