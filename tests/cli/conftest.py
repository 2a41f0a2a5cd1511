"""What all commands have in common in tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans are kept below the test's own folder, not the user's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(autouse=True)
def _no_cards(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--hardware this` is the CPU in tests, also on machines with cards."""
    folder = tmp_path_factory.mktemp("no-cards")
    (folder / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n", encoding="utf-8")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


_SMI = """#!/bin/sh
printf '%s\\n' {lines}
"""


@pytest.fixture
def with_cards(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Makes an environment whose nvidia-smi prints the lines that are given."""

    def made(*lines: str) -> dict[str, str]:
        program = tmp_path / "nvidia-smi"
        said = " ".join(f"'{line}'" for line in lines)
        program.write_text(_SMI.format(lines=said), encoding="utf-8")
        program.chmod(0o755)
        return {"PATH": str(tmp_path)}

    return made
