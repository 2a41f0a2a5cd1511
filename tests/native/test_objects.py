"""Sources of the kernels, and object files of levels: nothing compiled for one runs in another."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "tools" / "check_level_objects.py"


def newest_build() -> Path:
    """Where an editable install compiled the kernels last."""
    units = ROOT.glob("build/cp*/native/CMakeFiles/headrace_kernels.dir/level_portable.cpp.o")
    found = sorted(units, key=lambda path: path.stat().st_mtime)
    if not found:
        pytest.skip("no object files of the kernels here: not an editable install")
    return found[-1].parents[3]


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECK), str(folder)], capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    "sources", ["native/**/*.h", "native/**/*.cpp", "native/**/CMakeLists.txt", "tools/**/*.sh"]
)
def test_lines_of_native_sources_and_scripts_have_at_most_100_columns(sources: str) -> None:
    paths = sorted(ROOT.glob(sources))
    assert paths
    longest = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > 100
    ]
    assert not longest


@pytest.mark.process
def test_a_level_defines_its_table_and_nothing_else() -> None:
    done = check(newest_build())
    assert done.returncode == 0, done.stdout + done.stderr


def loops(function: str) -> list[list[str]]:
    """Names of the instructions between each jump back of a disassembled function and its goal."""
    line = r"^\s*([0-9a-f]+):\s+(?:\{\w+\}\s+)?(\S+)(?:\s+([0-9a-f]+))?"
    found = re.findall(line, function, re.MULTILINE)
    instructions = [(int(at, 16), name, goal) for at, name, goal in found]
    return [
        [name for at, name, _ in instructions if int(goal, 16) <= at < jump]
        for jump, jumping, goal in instructions
        if jumping.startswith("j") and goal and int(goal, 16) < jump
    ]


def rounds_of_the_probe(level: str) -> list[str]:
    """Instructions of the loop in which the probe of a level multiplies bytes."""
    found = newest_build().glob(f"**/headrace_kernels.dir/level_{level}.cpp.o")
    listing = subprocess.run(
        ["objdump", "-d", "-C", "--no-show-raw-insn", str(next(found))],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    name = "::multiply_bytes(long)>:"
    functions = [text for text in listing.split("\n\n") if name in text.split("\n")[0]]
    assert len(functions) == 1
    rounds = [loop for loop in loops(functions[0]) if {"vpmaddubsw", "vpdpbusd"} & {*loop}]
    assert len(rounds) == 1
    return rounds[0]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="of instructions of x86-64")
@pytest.mark.parametrize(
    ("level", "instruction", "times"),
    [
        ("avx2", "vpmaddubsw", 3 * 8 * 2),
        ("avx_vnni", "vpdpbusd", 5 * 2),
        ("avx512", "vpdpbusd", 12),
    ],
)
def test_the_probe_multiplies_all_bytes_in_every_round(
    level: str, instruction: str, times: int
) -> None:
    """What a compiler multiplies before the loop, or once for two that are alike, is not measured.

    Chains, times dot products of each, times registers of 16 outputs.
    """
    assert rounds_of_the_probe(level).count(instruction) >= times


@pytest.mark.skipif(platform.machine() != "x86_64", reason="of instructions of x86-64")
def test_the_probe_widens_a_tile_at_once_at_avx2() -> None:
    """As the kernels do for bytes of four bits: eight dot products are added in 16 bits."""
    loop = rounds_of_the_probe("avx2")
    assert loop.count("vpmaddwd") * 8 == loop.count("vpmaddubsw")


def test_an_inline_function_that_leaks_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "headrace_kernels.dir"
    folder.mkdir()
    leaking = "inline int twice(int x) { return 2 * x; }\nint (*shared)(int) = twice;\n"
    for level in ("portable", "avx2"):
        source = tmp_path / f"level_{level}.cpp"
        table = f"namespace headrace {{ int {level}_kernels() {{ return 0; }} }}\n"
        source.write_text(table + (leaking if level == "avx2" else ""), "ascii")
        subprocess.run(
            ["c++", "-c", str(source), "-o", str(folder / f"level_{level}.cpp.o")],
            check=True,
            timeout=60,
        )
    done = check(tmp_path)
    assert done.returncode == 1
    assert "level_avx2.cpp.o defines twice(int) (W) for others" in done.stdout
    assert "level_portable" not in done.stdout
