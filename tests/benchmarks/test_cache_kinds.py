"""Passes over caches of several kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cache_kinds import main
from tests.tiny import write_tiny_gguf


@pytest.mark.parametrize("more", [[], ["--attention"]], ids=["a pass", "attention"])
def test_each_kind_has_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    model = write_tiny_gguf(tmp_path, head_dim=32, max_positions=1024)
    few = "--depths 40,600 --kinds bf16,q8_0 --threads 1 --rounds 2 --tokens 3"
    main([str(model), *few.split(), *more])
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[3:]]
    assert [(kind, depth) for kind, depth, *_ in lines] == [
        ("bf16", "40"), ("q8_0", "40"), ("bf16", "600"), ("q8_0", "600"),
    ]  # fmt: skip
    assert all(float(rate) > 0 and float(beside) > 0 for *_, rate, beside in lines)
