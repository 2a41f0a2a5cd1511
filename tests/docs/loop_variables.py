"""Loop variables that docs/words.md replaces by the noun: `for one in targets`.

`python -m tests.docs.loop_variables [PATH ...]` lists them, `--write` writes the list of what is
left, whose numbers may only fall.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.pages import ROOT
from tests.docs.words import list_or_write, of_grown_rooms, parsed_sources, words_of

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


def new_loop_variables(found: list[LoopVariable]) -> list[str]:
    """Lines of those in rooms that have more of them than the list allows."""
    return of_grown_rooms(found, LOOP_VARIABLES_LEFT)


if __name__ == "__main__":
    sys.exit(
        list_or_write(
            list(loop_variables(parsed_sources())),
            LOOP_VARIABLES_LEFT,
            "loop variables",
            sys.argv[1:],
        )
    )
