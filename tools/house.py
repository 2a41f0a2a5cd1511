"""The house: which room stands on which floor, what it promises, and who imports whom.

A room is a package or a module of `src/headrace`; it imports only from floors below. The floors are
laid down here, the imports are read from the code as it stands. `tests/test_rooms.py` holds the one
against the other, `tools/draw_house.py` draws both.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "headrace"

FLOORS = {
    "errors": 0,
    "atomic_file": 0,
    "config": 1,
    "protocol": 1,
    "catalog": 1,
    "telemetry": 1,
    "embedded": 1,
    "page": 1,
    "weights": 2,
    "text": 2,
    "http": 2,
    "ops": 3,
    "models": 4,
    "engine": 5,
    "server": 6,
    "gateway": 6,
    "bench": 6,
    "eval": 6,
    "plan": 6,
    "offline": 6,
    "llm": 7,
    "async_llm": 7,
    "cli": 8,
    "__main__": 9,
}

# The one sideways direction. weights says what files say of tokenizers: TokenizerData, the kinds of
# tokens, names of ends and pre-tokenizers. text builds of it; weights never imports text.
SIDEWAYS = {("text", "weights")}


def room_of(path: Path) -> str:
    """The room a source file belongs to; "__init__" for the package's own face."""
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of the modules that a source file imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            if node.module == "headrace":
                yield from (f"headrace.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@functools.cache
def rooms() -> dict[str, frozenset[str]]:
    """Every room that has code, and the rooms it imports."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        room = room_of(path)
        if room == "__init__" or not text.strip():
            continue
        names = (name.split(".") for name in imported(ast.parse(text)))
        others = {name[1] for name in names if name[0] == "headrace" and len(name) > 1}
        found.setdefault(room, set()).update((others & FLOORS.keys()) - {room})
    return {room: frozenset(others) for room, others in found.items()}


def stairs(house: dict[str, frozenset[str]]) -> list[tuple[str, str]]:
    """The imports of `house` that no way through other rooms says already, in order."""

    def reached(room: str, door: str) -> set[str]:
        seen: set[str] = set()
        ahead = [other for other in house[room] if other != door]
        while ahead:
            other = ahead.pop()
            if other not in seen:
                seen.add(other)
                ahead += house.get(other, ())
        return seen

    return sorted(
        (room, other)
        for room, others in house.items()
        for other in others
        if other not in reached(room, other)
    )
