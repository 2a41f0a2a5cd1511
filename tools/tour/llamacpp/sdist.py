"""The llama-cpp-python sdist: where it comes from, and the part of it that the tour needs.

Its tests and chat templates are unpacked into a temporary folder and go with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

# The environment variable that names the sdist, or a folder with it.
VARIABLE = "HEADRACE_LLAMACPP_SDIST"
PACKAGE = "llama-cpp-python"
# The version whose tests the verdicts are about.
VERSION = "0.3.36"
_PATTERN = "llama_cpp_python-*.tar.gz"
_TESTS = "vendor/llama.cpp/tools/server/tests"
_PARTS = (f"{_TESTS}/", "vendor/llama.cpp/models/templates/")
MAX_FILE_BYTES = 8 * 2**20


class NotThere(Exception):
    """No sdist, or one without the tests."""


def find(given: Path | None) -> Path | None:
    """Find the sdist: the given file or folder, or what the environment variable names."""
    place = given or (Path(named) if (named := os.environ.get(VARIABLE)) else None)
    if place is None:
        return None
    if place.is_dir():
        found = sorted(place.glob(_PATTERN))
        if not found:
            raise NotThere(f"{place} has no {_PATTERN}")
        return found[-1]
    if not place.is_file():
        raise NotThere(f"{place} is not there")
    return place


def download(folder: Path) -> Path:
    """Download the sdist with pip, from the index that pip is set up for."""
    command = [sys.executable, "-m", "pip", "download", f"{PACKAGE}=={VERSION}", "--no-deps"]
    command += ["--no-binary", PACKAGE, "-d", str(folder), "--quiet"]
    try:
        subprocess.run(command, check=True)
    except subprocess.CalledProcessError as error:
        raise NotThere(
            f"pip could not download {PACKAGE} {VERSION}; give its sdist with --sdist"
        ) from error
    found = find(folder)
    assert found is not None
    return found


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack tests and templates below a folder; returns that of the tests."""
    tests = None
    with tarfile.open(sdist, "r|gz") as archive:
        for member in archive:
            _, _, inner = member.name.partition("/")
            if not member.isfile() or not inner.startswith(_PARTS):
                continue
            if member.size > MAX_FILE_BYTES:
                raise NotThere(f"{member.name} has {member.size} bytes, over {MAX_FILE_BYTES}")
            archive.extract(member, folder, filter="data")
            if inner.startswith(_TESTS):
                tests = folder / member.name.removesuffix(inner) / _TESTS
    if tests is None:
        raise NotThere(f"{sdist.name} has no {_TESTS}")
    return tests
