"""The house: which room stands on which floor, what it promises, and who imports whom.

A room is a package or a module of `src/headrace`; it imports only from floors below. The floors are
laid down here, the imports are read from the code as it stands. `tests/test_rooms.py` holds the one
against the other, `tools/draw_house.py` draws both. The large rooms have rooms and floors inside,
which are laid down in `tools/inner_floors.py`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src" / "headrace"

FLOORS = {
    "errors": 0,
    "atomic_file": 0,
    "sqlite_file": 1,
    "config": 1,
    "protocol": 1,
    "catalog": 1,
    "telemetry": 1,
    "embedded": 1,
    "page": 1,
    "answer_formats": 1,
    "structured": 2,
    "weights": 2,
    "text": 2,
    "http": 2,
    "ops": 3,
    "conversation": 3,
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


class Import(NamedTuple):
    """A module that a source file imports, or a name that it imports from one."""

    name: str
    """In full. Of `from a import b` there are two, `a` and `a.b`, which may be a module too."""
    only_types: bool
    """Under `if TYPE_CHECKING:`, so never imported by a program that runs."""


def imports(tree: ast.AST) -> Iterator[Import]:
    """What a source file imports, wherever in it."""
    ahead = [(tree, False)]
    while ahead:
        node, only_types = ahead.pop()
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            yield Import(module, only_types)
            yield from (Import(f"{module}.{alias.name}", only_types) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (Import(alias.name, only_types) for alias in node.names)
        elif isinstance(node, ast.If) and _is_type_checking(node.test):
            ahead += [(inner, True) for inner in node.body]
            ahead += [(inner, only_types) for inner in node.orelse]
        elif not isinstance(node, ast.expr):
            ahead += [(inner, only_types) for inner in ast.iter_child_nodes(node)]


def _is_type_checking(test: ast.expr) -> bool:
    return getattr(test, "attr", getattr(test, "id", "")) == "TYPE_CHECKING"


def imported(tree: ast.AST) -> Iterator[str]:
    """Full names of all that a source file imports, for types alone or not."""
    return (found.name for found in imports(tree))


@functools.cache
def sources() -> Mapping[Path, tuple[Import, ...]]:
    """Every file of the package that has code, and its imports; each is parsed once."""
    texts = ((path, path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py")))
    return {path: tuple(imports(ast.parse(text))) for path, text in texts if text.strip()}


@functools.cache
def rooms() -> dict[str, frozenset[str]]:
    """Every room that has code, and the rooms it imports."""
    found: dict[str, set[str]] = {}
    for path, there in sources().items():
        room = room_of(path)
        if room == "__init__":
            continue
        names = (each.name.split(".") for each in there)
        others = {name[1] for name in names if name[0] == "headrace" and len(name) > 1}
        found.setdefault(room, set()).update((others & FLOORS.keys()) - {room})
    return {room: frozenset(others) for room, others in found.items()}


def climbing() -> list[str]:
    """Imports that run neither downward nor in the one sideways direction, as sentences."""
    found = set()
    for path, there in sources().items():
        room = room_of(path)
        for name in (each.name for each in there):
            other = name.partition(".")[2].partition(".")[0]
            if not name.startswith("headrace.") or room == "__init__" or other == "__version__":
                continue
            if other not in FLOORS:
                found.add(f"{path.relative_to(SOURCE)}: {other} has no floor")
            elif other != room and (room, other) not in SIDEWAYS and FLOORS[other] >= FLOORS[room]:
                found.add(f"{path.relative_to(SOURCE)}: {room} imports {other}")
    return sorted(found)


def inner_imports(house: str) -> dict[tuple[str, str], list[str]]:
    """The imports between the rooms of `house`, a folder of the package, and where they are.

    An inner room is a folder directly below, or a file that lies loose there. What is imported for
    types alone does not count: no program that runs comes by it.
    """
    folder = SOURCE / house
    room_by_module = {
        _module_name(path): path.relative_to(folder).with_suffix("").parts[0]
        for path in sources()
        if path.is_relative_to(folder) and path != folder / "__init__.py"
    }
    found: dict[tuple[str, str], list[str]] = {}
    for path, there in sources().items():
        room = room_by_module.get(_module_name(path))
        for name in sorted({each.name for each in there if not each.only_types}):
            other = room_by_module.get(name)
            if room is not None and other not in (None, room):
                place = f"{path.relative_to(SOURCE)} imports {name}"
                found.setdefault((room, str(other)), []).append(place)
    return found


def inner_rooms(house: str) -> dict[str, frozenset[str]]:
    """Every inner room of `house` and those it imports when the program runs."""
    folder = SOURCE / house
    inside = (path.relative_to(folder) for path in sources() if path.is_relative_to(folder))
    names = {path.with_suffix("").parts[0] for path in inside} - {"__init__"}
    edges = inner_imports(house)
    return {name: frozenset(low for high, low in edges if high == name) for name in sorted(names)}


def _module_name(path: Path) -> str:
    parts = ("headrace", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts).removesuffix(".__init__")


def rings(house: Mapping[str, Iterable[str]]) -> set[frozenset[str]]:
    """The sets of two and more rooms of which each reaches each (Tarjan's algorithm)."""
    found: set[frozenset[str]] = set()
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []

    def visit(room: str) -> None:
        numbers[room] = lowest[room] = len(numbers)
        path.append(room)
        for other in house.get(room, ()):
            if other not in numbers:
                visit(other)
                lowest[room] = min(lowest[room], lowest[other])
            elif other in path:
                lowest[room] = min(lowest[room], numbers[other])
        if lowest[room] == numbers[room]:
            ring = frozenset(path[path.index(room) :])
            del path[path.index(room) :]
            if len(ring) > 1:
                found.add(ring)

    for room in house:
        if room not in numbers:
            visit(room)
    return found


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
