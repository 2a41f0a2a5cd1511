"""Sources of the kernels, and object files of levels: nothing compiled for one runs in another."""

from __future__ import annotations

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


def test_native_lines_have_at_most_100_columns() -> None:
    sources = [
        path
        for name in ("*.h", "*.cpp", "CMakeLists.txt")
        for path in ROOT.glob(f"native/**/{name}")
    ]
    assert sources
    longest = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > 100
    ]
    assert not longest


@pytest.mark.process
def test_a_level_defines_its_table_and_nothing_else() -> None:
    done = check(newest_build())
    assert done.returncode == 0, done.stdout + done.stderr


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
