"""The house: a room imports only from floors below, and importing headrace stays cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tools.house import FLOORS, SIDEWAYS, SOURCE, imported, room_of

PROMISED_ABSENT = {"torch", "transformers", "pydantic"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=str)
def test_imports_run_downward(path: Path) -> None:
    room = room_of(path)
    if room == "__init__":
        return
    for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
        if not name.startswith("headrace.") or name == "headrace.__version__":
            continue
        other = name.split(".")[1]
        assert other in FLOORS, f"{path}: {other} has no floor"
        if other == room or (room, other) in SIDEWAYS:
            continue
        assert FLOORS[other] < FLOORS[room], f"{path}: {room} imports {other}"


def test_importing_headrace_is_cheap_and_never_brings_torch() -> None:
    code = "import headrace, sys; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    modules = set(ast.literal_eval(done.stdout))
    assert not modules & (PROMISED_ABSENT | {"numpy", "tokenizers", "starlette"})


def test_the_whole_product_imports_without_torch() -> None:
    names = [
        ".".join(("headrace", *path.relative_to(SOURCE).with_suffix("").parts))
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py")
    ]
    code = f"import importlib, sys\nfor n in {names!r}: importlib.import_module(n)\n"
    code += f"print(sorted({PROMISED_ABSENT!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
