"""The house: a room imports only from floors below, and importing headrace stays cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "headrace"

FLOORS = {
    "errors": 0,
    "config": 1,
    "protocol": 1,
    "catalog": 1,
    "telemetry": 1,
    "embedded": 1,
    "weights": 2,
    "text": 2,
    "ops": 3,
    "models": 4,
    "engine": 5,
    "server": 6,
    "bench": 6,
    "eval": 6,
    "offline": 6,
    "llm": 7,
    "async_llm": 7,
    "cli": 8,
    "__main__": 9,
}

# The one sideways direction. weights says what files say of tokenizers: TokenizerData, the kinds of
# tokens, names of ends and pre-tokenizers. text builds of it; weights never imports text.
ALLOWED = {("text", "weights")}

PROMISED_ABSENT = {"torch", "transformers", "pydantic"}


def _room(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            if node.module == "headrace":
                yield from (f"headrace.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=str)
def test_imports_run_downward(path: Path) -> None:
    room = _room(path)
    if room == "__init__":
        return
    for name in _imports(ast.parse(path.read_text(encoding="utf-8"))):
        if not name.startswith("headrace.") or name == "headrace.__version__":
            continue
        other = name.split(".")[1]
        assert other in FLOORS, f"{path}: {other} has no floor"
        if other == room or (room, other) in ALLOWED:
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
