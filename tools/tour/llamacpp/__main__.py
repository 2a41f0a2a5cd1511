"""`python -m tools.tour.llamacpp`: llama.cpp's server tests, unmodified, against `headrace serve`.

Exits with 1 where a test fails that the table of verdicts says passes, where one is not in the
table, or was not run; names those that have begun to pass.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table as Grid

from tools.tour.llamacpp import sdist
from tools.tour.llamacpp.run import run
from tools.tour.llamacpp.verdicts import KINDS, Comparison, Table, compare, load

MODEL = "models/stories260K/stories260K.gguf"


def main() -> int:
    """Run the tour."""
    parser = argparse.ArgumentParser(prog="python -m tools.tour.llamacpp", description=__doc__)
    parser.add_argument(
        "--sdist", type=Path, help=f"file or folder; default: {sdist.VARIABLE}, else downloaded"
    )
    parser.add_argument("--model", type=Path, help="stories260K.gguf; default: of HEADRACE_ASSETS")
    parser.add_argument("--file", action="append", help="run only this file of theirs")
    parser.add_argument("--json", action="store_true", help="print outcomes and counts as JSON")
    options = parser.parse_args()
    console = Console(stderr=True)
    table = load()
    if options.file and (strange := sorted(set(options.file) - set(table.files))):
        parser.error(f"--file {', '.join(strange)}: choose from {', '.join(table.files)}")
    model = options.model or Path(os.environ.get("HEADRACE_ASSETS", ".")) / MODEL
    if not model.is_file():
        parser.error(f"no {model}; name stories260K.gguf with --model")
    with tempfile.TemporaryDirectory(prefix="tour-") as name:
        folder = Path(name)
        try:
            archive = sdist.find(options.sdist) or sdist.download(folder)
            tests = sdist.unpack(archive, folder)
        except sdist.NotThere as reason:
            parser.error(str(reason))
        files = options.file or table.files
        outcomes = run(tests, files, model, folder)
        comparison = compare(table, outcomes, files)
        if not outcomes:
            console.print((folder / "output.txt").read_text("utf-8", "replace"), markup=False)
    if options.json:
        report = {**asdict(comparison), "outcomes": [asdict(outcome) for outcome in outcomes]}
        sys.stdout.write(json.dumps(report, indent=1) + "\n")
    else:
        Console().print(_grid(table, comparison))
    _name(console, comparison)
    return 0 if comparison.holds else 1


def _grid(table: Table, comparison: Comparison) -> Grid:
    grid = Grid("verdict", "seen", "expected", "meaning")
    for kind, meaning in KINDS.items():
        seen = comparison.counts.get(kind, 0)
        grid.add_row(kind, str(seen), str(table.counts[kind]), meaning)
    return grid


def _name(console: Console, comparison: Comparison) -> None:
    parts = {
        "fails, and should pass": comparison.broken,
        "passes now: make its verdict `pass`": comparison.improved,
        "is not in the table": comparison.unknown,
    }
    for meaning, outcomes in parts.items():
        for outcome in outcomes:
            console.print(f"{outcome.test} {meaning}  {outcome.reason}", markup=False)
    for test in comparison.not_run:
        console.print(f"{test} was not run", markup=False)


if __name__ == "__main__":
    sys.exit(main())
