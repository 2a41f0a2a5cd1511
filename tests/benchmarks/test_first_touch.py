"""Steps whose streams all take a block, with memory made ready ahead of them and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.first_touch import main
from tests.tiny import write_tiny_gguf


@pytest.mark.process
def test_both_modes_take_a_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Streams of 256 tokens take a block with the first and the 33rd token of their answers."""
    model = write_tiny_gguf(tmp_path, max_positions=1024)
    few = "--streams 2 --tokens 40 --rounds 1 --kv-cache-memory-bytes 4000000"
    main([str(model), *few.split()])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| populated ahead |")
    modes = [line.strip("| ").split(" | ") for line in lines[2:4]]
    assert [mode for mode, *_ in modes] == ["off", "on"]
    for _, *figures in modes:
        prompt_s, median, taking, longest, _, _, loaded, ended = (
            float(figure.replace(",", "")) for figure in figures
        )
        assert prompt_s >= 0 and median > 0 and 0 < taking <= longest
        assert 10 < loaded <= ended < 10_000
