"""Steps whose streams all take a block, with memory made ready ahead of them and without."""

from __future__ import annotations

import json

import pytest

from benchmarks.first_touch import Run, main
from tests.tiny import write_tiny_gguf


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Streams of 256 tokens take a block with the first and the 33rd token of their answers."""
    model = write_tiny_gguf(tmp_path_factory.mktemp("tiny"), max_positions=1024)
    options = "--streams 2 --tokens 40 --rounds 1 --kv-cache-memory-bytes 4000000"
    return [str(model), *options.split()]


@pytest.mark.parametrize("mode", ["off", "on"])
def test_steps_that_take_blocks_are_timed(
    few: list[str], mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main([*few, "--mode", mode])
    run = Run(*json.loads(capsys.readouterr().out))
    assert min(run) > 0
    assert run.taking_median_s <= run.longest_s
    assert run.loaded_bytes > 10 * 2**20 and run.ended_bytes > 10 * 2**20


@pytest.mark.process
def test_processes_of_both_modes_take_turns(
    few: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(few)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| populated ahead |")
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| off", "| on"]
