"""From command to first token: a start that is timed, and the order and the table of several."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks import first_token
from benchmarks.first_token import Run, measure, touch
from tests.tiny import write_tiny_gguf


@pytest.mark.process
def test_a_start_has_its_times_and_phases(tmp_path: Path) -> None:
    model = str(write_tiny_gguf(tmp_path))
    command = [sys.executable, "-m", "headrace", "serve", model, "--json", "--port", "{port}"]
    touch(1 << 20)
    run = measure(command, os.environ, phases=True, memory=False)
    assert 0 < run.ready_s < run.first_token_s < 60
    assert run.phases_s and all(0 <= seconds <= run.ready_s for seconds in run.phases_s.values())
    assert any(name.startswith("server: ") for name in run.phases_s)


def test_servers_take_turns_and_memory_is_of_a_run_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    starts: list[tuple[str, bool]] = []

    def started(
        command: list[str], environment: Mapping[str, str], *, phases: bool, memory: bool
    ) -> Run:
        assert "PYTHONDONTWRITEBYTECODE" not in environment
        starts.append((command[0], memory))
        seconds = float(len(starts))
        peak = 2 * 10**9 if memory else None
        return Run(seconds, seconds + 0.5, peak, peak, {"weights": 0.25} if phases else {})

    monkeypatch.setattr(first_token, "measure", started)
    model = write_tiny_gguf(tmp_path)
    first_token.main([str(model), "--peer", "peer --port {port}", "--runs", "2"])
    own = sys.executable
    turns = [(own, False), ("peer", False)]
    assert starts == [(own, False), *turns, *turns, (own, True), ("peer", True)]
    title, heads, *lines = capsys.readouterr().out.splitlines()
    assert title == "2 runs each" and heads.split()[:3] == ["server", "ready", "s"]
    assert lines[0].split() == ["headrace", "3.00", "[2.00..4.00]", "3.50", "[2.50..4.50]",
                                "2.00", "2.00"]  # fmt: skip
    assert lines[1].split()[:3] == ["peer", "4.00", "[3.00..5.00]"]
    assert lines[2].split() == ["weights", "0.25", "[0.25..0.25]"]
