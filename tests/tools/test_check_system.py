"""The set-up check: silent where all is there, one apt line where something is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "check_system.sh"


def _check(python: str, folder: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    """Run the script where only `commands` are on the PATH."""
    for command in commands:
        found = shutil.which(command)
        assert found, f"this test needs {command}"
        (folder / command).symlink_to(found)
    environment = {key: value for key, value in os.environ.items() if key != "CXX"}
    shell = shutil.which("sh")
    assert shell
    return subprocess.run(
        [shell, str(SCRIPT), python],
        env=environment | {"PATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _fake_python(folder: Path, body: str) -> str:
    path = folder / "fake-python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_silent_where_everything_is_there() -> None:
    done = subprocess.run(
        ["sh", str(SCRIPT), sys.executable], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_missing_compiler_and_make_are_one_apt_line(tmp_path: Path) -> None:
    done = _check(sys.executable, tmp_path)
    assert done.returncode == 1
    assert "sudo apt-get install -y g++ make\n" in done.stderr


def test_a_missing_python_names_its_packages(tmp_path: Path) -> None:
    done = _check("python3.99", tmp_path)
    assert done.returncode == 1
    assert "'python3.99' is not there" in done.stderr
    assert "python3 python3-dev python3-venv" in done.stderr


def test_a_python_that_does_not_run_is_not_called_too_old(tmp_path: Path) -> None:
    done = _check(_fake_python(tmp_path, "exit 127"), tmp_path)
    assert done.returncode == 1
    assert "fake-python' is on PATH and does not run" in done.stderr
    assert "too old" not in done.stderr


def test_missing_headers_and_venv_are_named_by_version(tmp_path: Path) -> None:
    body = (
        '[ "$1" = --version ] && exit 0\n'
        'case "$2" in *"print("*) echo python3.11;; *version_info*) exit 0;; *) exit 1;; esac'
    )
    done = _check(_fake_python(tmp_path, body), tmp_path)
    assert done.returncode == 1
    assert "python3.11-venv python3.11-dev" in done.stderr


def test_an_old_python_is_refused_with_its_version(tmp_path: Path) -> None:
    body = 'case "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac'
    done = _check(_fake_python(tmp_path, body), tmp_path)
    assert done.returncode == 1
    assert "Python 3.9.2 is too old; 3.11 or later is needed" in done.stderr
    assert "make PYTHON=" in done.stderr
