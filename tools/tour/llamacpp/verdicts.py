"""The table of verdicts: what each of their tests is expected to give here, and why.

The table may only grow: a test of verdict `pass` that fails is an error, and one of another verdict
that passes is named, so that it becomes `pass`.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.tour.llamacpp.run import Outcome

TABLE = Path(__file__).with_name("verdicts.toml")
KINDS = {
    "pass": "holds here",
    "missing": "a feature that is not there yet",
    "different": "different on purpose",
    "unavailable": "needs a model or a server that the tour does not have",
    "skipped": "not run there either",
}
_CASES = re.compile(r"(?P<name>[\w.]+::\w+)(?:#(?P<numbers>\d+(?:[-,]\d+)*))?")


@dataclass(frozen=True)
class Group:
    """Tests with one verdict for one reason."""

    verdict: str
    """A key of `KINDS`."""
    tests: tuple[str, ...]
    """File, function and, of a test with cases, the number of the case."""
    reason: str = ""
    """Why, in a few words."""
    feature: str = ""
    """Of a missing one: the feature that brings it."""
    docs: str = ""
    """Of a different one: words of docs/compatibility.md that state the difference."""


@dataclass(frozen=True)
class Left:
    """A file of theirs that is not run, as no test of it can hold yet."""

    file: str
    """Its name."""
    feature: str
    """What it is about."""


@dataclass(frozen=True)
class Table:
    """The whole table."""

    version: str
    """Version of the sdist that it is about."""
    groups: tuple[Group, ...]
    """Verdicts of the files that are run."""
    left: tuple[Left, ...]
    """Files that are not."""

    @property
    def verdicts(self) -> dict[str, Group]:
        """The group of each test."""
        return {test: group for group in self.groups for test in group.tests}

    @property
    def counts(self) -> Counter[str]:
        """Tests by verdict."""
        return Counter(group.verdict for group in self.groups for _ in group.tests)

    @property
    def files(self) -> list[str]:
        """Files that are run."""
        return sorted({test.partition("::")[0] for test in self.verdicts})


@dataclass(frozen=True)
class Comparison:
    """What a run gave beside what was expected."""

    counts: dict[str, int]
    """Tests by verdict, as seen: one that passes counts as `pass`, whatever was expected."""
    broken: tuple[Outcome, ...]
    """Failed, though they should pass."""
    improved: tuple[Outcome, ...]
    """Passed, though expected not to."""
    unknown: tuple[Outcome, ...]
    """Not in the table."""
    not_run: tuple[str, ...]
    """In the table, and not seen."""

    @property
    def holds(self) -> bool:
        """Whether nothing is worse than the table says, and nothing unknown."""
        return not (self.broken or self.unknown or self.not_run)


def load(path: Path = TABLE) -> Table:
    """Read the table."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    groups = tuple(_group(fields) for fields in data["group"])
    left = tuple(Left(file, feature) for file, feature in data["left"].items())
    return Table(data["version"], groups, left)


def compare(table: Table, outcomes: Sequence[Outcome], files: Iterable[str]) -> Comparison:
    """Hold a run of some files against the table."""
    verdicts = table.verdicts
    counts: Counter[str] = Counter()
    broken, improved, unknown = [], [], []
    for outcome in outcomes:
        group = verdicts.get(outcome.test)
        if group is None:
            unknown.append(outcome)
        elif outcome.outcome == "passed":
            counts["pass"] += 1
            if group.verdict != "pass":
                improved.append(outcome)
        elif outcome.outcome == "skipped":
            counts["skipped"] += 1
        elif group.verdict in ("pass", "skipped"):
            counts["broken"] += 1
            broken.append(outcome)
        else:
            counts[group.verdict] += 1
    wanted = {test for test in verdicts if test.partition("::")[0] in set(files)}
    not_run = sorted(wanted - {outcome.test for outcome in outcomes})
    return Comparison(dict(counts), tuple(broken), tuple(improved), tuple(unknown), tuple(not_run))


def expand(text: str) -> list[str]:
    """Write out the cases of `file::function#1-3,5`."""
    found = _CASES.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not file::function or file::function#1-3,5")
    if found["numbers"] is None:
        return [text]
    numbers: list[int] = []
    for span in found["numbers"].split(","):
        first, _, last = span.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return [f"{found['name']}#{number}" for number in numbers]


def _group(fields: dict[str, Any]) -> Group:
    tests = tuple(test for text in fields["tests"] for test in expand(text))
    return Group(**{**fields, "tests": tests})
