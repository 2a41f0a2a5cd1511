"""The house: a room imports only from floors below, and importing headrace stays cheap."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tools.house import SOURCE, climbing, imports, inner_imports, inner_rooms, rings, sources
from tools.inner_floors import FLOORS, RINGS, UPWARD, faults

PROMISED_ABSENT = {"torch", "transformers", "pydantic"}


@pytest.fixture(scope="module", autouse=True)
def every_source_is_read() -> None:
    """Once for all tests here: 1.5 s of CPU."""
    sources()


def test_imports_run_downward() -> None:
    assert len(sources()) > 1000
    assert climbing() == []


@pytest.mark.parametrize("house", FLOORS)
def test_imports_inside_a_large_room_run_downward_but_for_the_rings_that_are_listed(
    house: str,
) -> None:
    edges, rooms = inner_imports(house), inner_rooms(house)
    assert len(edges) > len(rooms) > 20
    assert faults(edges, rooms, FLOORS[house], RINGS[house], UPWARD[house]) == []


def test_imports_for_types_alone_are_told_apart() -> None:
    code = """
from typing import TYPE_CHECKING
import typing
if TYPE_CHECKING:
    from a import b
else:
    import c
if typing.TYPE_CHECKING:
    import d
def f():
    try:
        import e.g
    except ImportError:
        if True:
            from h import i
"""
    found = {each.name: each.only_types for each in imports(ast.parse(code))}
    assert {name for name, only_types in found.items() if only_types} == {"a", "a.b", "d"}
    assert {name for name, only_types in found.items() if not only_types} >= {
        "typing", "c", "e.g", "h", "h.i",
    }  # fmt: skip


def test_rings_are_the_sets_of_rooms_that_reach_each_other() -> None:
    house = {"a": "b", "b": "c", "c": "ad", "d": "e", "e": "f", "f": "e", "g": "g"}
    assert rings(house) == {frozenset("abc"), frozenset("ef")}
    assert rings({"a": "bc", "b": "c", "c": ""}) == set()


RING = frozenset("bc")
EDGES = {("a", "b"): ["a.py imports b"], ("b", "c"): ["b.py imports c"], ("c", "b"): ["c imports"]}


@pytest.mark.parametrize(
    ("edges", "rooms", "floors", "known", "upward", "fault"),
    [
        (EDGES, "abc", {"a": 2, "b": 1, "c": 0}, [RING], [("c", "b")], ""),
        (EDGES, "abc", {"a": 2, "b": 1, "c": 0}, [RING], [], "c (floor 0) imports b (floor 1)"),
        (EDGES, "abc", {"a": 2, "b": 1, "c": 1}, [RING], [("c", "b")], "b (floor 1) imports c"),
        (EDGES, "abc", {"a": 2, "b": 1, "c": 0}, [], [("c", "b")], "a ring that is not listed: b"),
        (EDGES, "abc", {"b": 1, "c": 0}, [RING], [("c", "b")], "a has no floor: its imports need"),
        (EDGES, "bc", {"a": 2, "b": 1, "c": 0}, [RING], [("c", "b")], "a is not there"),
        ({("b", "c"): [""]}, "bc", {"b": 1, "c": 0}, [RING], [], "a listed ring that is gone"),
        ({("b", "c"): [""]}, "bc", {"b": 1, "c": 0}, [], [("c", "b")], "c no longer imports b"),
        ({("b", "c"): [""]}, "bc", {"b": 1, "c": 0}, [], [("b", "c")], "b imports c downward"),
        ({("b", "c"): [""]}, "bc", {"b": 0, "c": 1}, [], [("b", "c")], "is in no listed ring"),
    ],
)  # fmt: skip
def test_what_the_tables_do_not_say_is_a_fault(
    edges: dict[tuple[str, str], list[str]],
    rooms: str,
    floors: dict[str, int],
    known: list[frozenset[str]],
    upward: list[tuple[str, str]],
    fault: str,
) -> None:
    found = faults(edges, rooms, floors, known, upward)
    assert found == [] if not fault else any(fault in each for each in found), found


def test_importing_headrace_is_cheap_and_never_brings_torch() -> None:
    code = "import headrace, sys; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    modules = set(ast.literal_eval(done.stdout))
    assert not modules & (PROMISED_ABSENT | {"numpy", "tokenizers", "starlette"})


@pytest.mark.process
@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        # Which family is run is known when the model is opened.
        ("headrace.engine.load", "headrace.models.families.gemma"),
        # The server's process computes nothing of a model.
        (
            "headrace.server.run, headrace.server.app, headrace.server.lifecycle.load",
            "headrace.ops",
        ),
        # Launched before click is imported, or anything else.
        ("headrace.engine.process.spawn", "msgspec"),
    ],
)
def test_a_start_imports_no_more_than_it_needs(modules: str, absent: str) -> None:
    code = f"import {modules}, sys; print([m for m in sys.modules if m.startswith({absent!r})])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.process
def test_the_whole_product_imports_without_torch() -> None:
    names = [
        ".".join(("headrace", *path.relative_to(SOURCE).with_suffix("").parts))
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py")
        # The one package that needs it, and that only `make_ops` imports.
        and not path.is_relative_to(SOURCE / "ops" / "torch")
    ]
    code = f"import importlib, sys\nfor n in {names!r}: importlib.import_module(n)\n"
    code += f"print(sorted({PROMISED_ABSENT!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
