"""The line that tells how many of a trace's requests are made."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from headrace.bench.load import prompt_options
from headrace.bench.load.prompt_options import PromptOptions, make_requests
from headrace.bench.load.tokenization import load_tokenization
from headrace.bench.load.trace_progress import make_progress, no_progress
from headrace.errors import ConfigError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_is_drawn_over_itself_and_gone_in_the_end() -> None:
    screen, now_s = Terminal(), [0.0]
    making = make_progress(screen, quiet=False, clock_s=lambda: now_s[0])
    for made in range(4000):
        now_s[0] = made / 1024
        making(made, 4000)
    drawn = screen.getvalue().split("\r")
    assert drawn[1:] == [
        f"making requests: {made:,} of 4,000\x1b[K" for made in range(512, 4000, 512)
    ]
    making(4000, 4000)
    assert screen.getvalue().endswith("\r\x1b[K")


def test_what_is_made_at_once_draws_nothing() -> None:
    screen = Terminal()
    making = make_progress(screen, quiet=False, clock_s=lambda: 0.0)
    making(0, 2)
    making(1, 2)
    making(2, 2)
    assert screen.getvalue() == ""


def test_only_a_terminal_has_it() -> None:
    assert make_progress(io.StringIO(), quiet=False) is no_progress
    assert make_progress(Terminal(), quiet=True) is no_progress


def test_a_trace_tells_of_each_request_and_of_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.jsonl"
    row = {"timestamp": 0, "input_length": 6, "output_length": 3, "hash_ids": [1]}
    path.write_text(f"{json.dumps(row)}\n" * 3)
    told: list[tuple[int, int]] = []

    def make(**options: object) -> None:
        make_requests(
            PromptOptions(**options),  # type: ignore[arg-type]
            load_tokenization(None),
            "openai-chat",
            requests=3,
            warmup_requests=0,
            making=lambda made, of: told.append((made, of)),
        )

    make(trace=path)
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    told.clear()
    make()
    assert told == []
    monkeypatch.setattr(prompt_options, "MAX_TRACE_CHARACTERS", 40)
    with pytest.raises(ConfigError, match="longer than"):
        make(trace=path)
    assert told[-1] == (3, 3), "what is said next has the line for itself"
