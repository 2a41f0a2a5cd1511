"""How a fetch is shown: a bar where there is a terminal, few lines where there is none."""

from __future__ import annotations

import io
import sys

import pytest

from headrace.cli.fetch_bar import fetch_bar, size_text
from headrace.weights.store.fetch import FetchProgress


class _Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def _step(state: str, done: int, size: int = 500_000_000) -> FetchProgress:
    return FetchProgress("model.gguf", 2, 3, size, state, done, done, size)  # type: ignore[arg-type]


def _shown(monkeypatch: pytest.MonkeyPatch, steps: list[FetchProgress], *, terminal: bool) -> str:
    stream = _Stream(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with fetch_bar() as show:
        for step in steps:
            show(step)
    return stream.getvalue()


def test_a_log_gets_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    coming = [_step("coming", share * 5_000_000) for share in range(100)]
    steps = [_step("begun", 0), *coming, _step("done", 500_000_000)]
    lines = _shown(monkeypatch, steps, terminal=False).splitlines()
    assert lines[0] == "fetching model.gguf (2/3): 10%"
    assert lines[-1] == "fetched model.gguf (2/3), 500.00 MB"
    assert len(lines) == 10
    small = [_step("begun", 0, 10), _step("coming", 5, 10), _step("done", 10, 10)]
    assert _shown(monkeypatch, small, terminal=False) == "fetched model.gguf (2/3), 10 B\n"


def test_a_terminal_gets_a_bar_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [_step("begun", 0), _step("coming", 250_000_000), _step("done", 500_000_000)]
    output = _shown(monkeypatch, steps, terminal=True)
    assert "model.gguf (2/3)" in output
    assert "500.0" in output
    assert output.endswith("\x1b[2K")
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_is_shown_where_nothing_comes(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _shown(monkeypatch, [_step("here", 500_000_000)], terminal=terminal) == ""


def test_sizes_are_powers_of_ten() -> None:
    shown = [size_text(size) for size in (999, 1000, 2_500_000, 16_000_000_000)]
    assert shown == ["999 B", "1.00 kB", "2.50 MB", "16.00 GB"]
