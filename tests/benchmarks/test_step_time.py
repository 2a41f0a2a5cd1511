"""Streams beside prompts: rates beside several prompts, and a turn of each server."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.standalone import standalone
from benchmarks.step_time import Turn, covered_s, main, plot_of, row
from tests.tiny import write_tiny_gguf


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [
        ([], 0),
        ([(1, 2)], 1),
        ([(3, 4), (0, 1)], 2),
        ([(0, 1), (1, 2)], 2),
        ([(1, 3), (2, 4)], 3),
        ([(2, 3), (1, 5), (4, 6)], 5),
    ],
)
def test_seconds_in_several_intervals_count_once(
    intervals: list[tuple[float, float]], seconds: float
) -> None:
    assert covered_s(intervals) == seconds


def test_tokens_beside_two_prompts_are_by_the_time_of_both_together() -> None:
    """Three seconds in which 2 x 100 tokens of prompts are read, and three of the stream come."""
    options = argparse.Namespace(
        streams=1, stream_prompt=4, tokens=4, prompts=2, prompt=100, answer=3
    )
    turn = Turn([[1.0, 2.0, 3.0, 9.0]], [(0.5, 2.5), (1.5, 3.5)], 10.0, {})
    cells = row("no limit", turn, options)
    assert cells[0] == "no limit"
    assert cells[5:] == ["2.0", "68", "10.0", "21"]


def test_the_plot_has_the_longest_wait_of_each_second() -> None:
    stream = [0.1, 0.2, 0.9, 1.1, 1.2, 2.5]
    turns = [(name, Turn([stream], [(0.5, 1.5)], 3.0, {})) for name in ("no limit", "100 ms")]
    plot = plot_of(turns, 100)
    assert plot is not None and standalone(plot).startswith("<svg")


@pytest.mark.process
def test_each_server_takes_a_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "turns.json"
    work = "--streams 2 --stream-prompt 8 --tokens 24 --prompts 2 --prompt 64 --answer 2"
    times = "--settle 0.05 --every 0.05 --max-step-ms 50 --kv-cache-memory-bytes 4000000"
    model = str(write_tiny_gguf(tmp_path))
    main([model, *work.split(), *times.split(), "--json", str(saved)])
    turns = json.loads(saved.read_text())
    assert [turn["name"] for turn in turns] == ["no limit", "50 ms"]
    for turn in turns:
        assert len(turn["arrivals"]) == 2 and len(turn["reads"]) == 2
        for stream in turn["arrivals"]:
            assert 1 < len(stream) <= 24 and stream == sorted(stream) and stream[0] > 0
            assert turn["wall_s"] >= stream[-1]
        assert all(0.05 <= sent < first <= turn["wall_s"] for sent, first in turn["reads"])
        assert "headrace:limited_steps_total" in turn["metrics"]
    table = capsys.readouterr().out
    assert "| no limit |" in table and "| 50 ms |" in table
