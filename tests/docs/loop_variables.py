"""Loop variables that docs/words.md replaces by the noun: `for one in targets`.

`python -m tests.docs.loop_variables [PATH ...]` lists them, `--write` writes the list of what is
left, whose numbers may only fall.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import ROOT, SOURCE
from tests.docs.words import (
    grown,
    parsed_sources,
    read_numbers,
    room_of,
    words_of,
    write_numbers,
)

LOOP_VARIABLES_LEFT = Path(__file__).with_name("loop_variables.txt")

NAMES = words_of("asked one said told")
"""Names that say nothing of what is looped over."""


@dataclass(frozen=True, slots=True)
class LoopVariable:
    """A variable of a loop or a comprehension that has one of these names."""

    path: Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: for {self.name} in"


def loop_variables(sources: Mapping[Path, ast.Module]) -> Iterator[LoopVariable]:
    """Such variables of all loops, in tuples too: `for place, one in enumerate(rows)`."""
    for path, tree in sources.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
                continue
            for name in ast.walk(node.target):
                if (
                    isinstance(name, ast.Name)
                    and name.id in NAMES
                    and isinstance(name.ctx, ast.Store)
                ):
                    yield LoopVariable(path, name.lineno, name.id)


def counted(found: Iterable[LoopVariable]) -> dict[str, int]:
    """Number of such variables in each room."""
    return dict(sorted(Counter(room_of(variable.path) for variable in found).items()))


def new_loop_variables(found: list[LoopVariable]) -> list[str]:
    """Lines of all such variables of the rooms that have more of them than the list allows."""
    more = grown(counted(found), read_numbers(LOOP_VARIABLES_LEFT))
    return [str(variable) for variable in found if room_of(variable.path) in more]


def main(arguments: Iterable[str]) -> int:
    """List what is left, all of it or below some paths; with --write, write the list."""
    chosen = list(arguments)
    found = list(loop_variables(parsed_sources()))
    if chosen == ["--write"]:
        return write_numbers(LOOP_VARIABLES_LEFT, counted(found))
    below = [Path(path).resolve() for path in chosen] or [SOURCE]
    lines = [
        str(variable)
        for variable in found
        if any(variable.path.is_relative_to(place) for place in below)
    ]
    print("\n".join(lines))
    print(f"{len(lines)} loop variables")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
