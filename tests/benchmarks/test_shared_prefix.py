"""Requests with the same prefix: its blocks, a step over them, and two servers that take turns."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.shared_prefix import Burst, arguments, main, report, steps, tables_of
from tests.tiny import write_tiny_gguf


def test_only_the_prefix_is_in_common() -> None:
    tables, blocks = tables_of(requests=3, entries=5, common=2, apart=True)
    assert blocks == 3 * 5 == len(np.unique(tables["apart"]))
    assert len(np.unique(tables["shared"])) == 2 + 3 * 3
    assert (tables["shared"][:, :2] == tables["apart"][0, :2]).all()
    assert (tables["shared"][:, 2:] == tables["apart"][:, 2:]).all()
    tables, blocks = tables_of(requests=3, entries=5, common=2, apart=False)
    assert list(tables) == ["shared"] and blocks == 2 + 3 * 3 == len(np.unique(tables["shared"]))
    assert tables_of(requests=2, entries=1, common=0, apart=False)[1] == 2


def test_a_step_is_timed_over_each_layout(tmp_path: Path) -> None:
    few = "--step --apart --requests 2 --prefix 40 --own 30 --rounds 2 --threads 1"
    taken = steps(arguments([str(write_tiny_gguf(tmp_path)), *few.split()]))
    assert list(taken) == ["shared", "apart"]
    assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in taken.values())


def test_the_report_has_medians_of_rounds() -> None:
    rounds = [Burst([1.0, 3.0, 2.0], 4.0, 100), Burst([2.0, 4.0, 6.0], 8.0, 110)]
    line = report({"shared": rounds}).splitlines()[1]
    assert line.split() == ["shared", "3.000", "4.500", "6.000", "[100,", "110]"]


@pytest.mark.process
def test_a_prefix_is_computed_once_where_it_is_shared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = "--requests 3 --prefix 64 --own 8 --rounds 1 --json"
    main([str(write_tiny_gguf(tmp_path)), *few.split()])
    found = json.loads(capsys.readouterr().out)
    computed = {name: [burst["computed_tokens"] for burst in some] for name, some in found.items()}
    assert computed == {"unshared": [3 * 72], "shared": [64 + 3 * 8]}
    for (burst,) in found.values():
        assert len(burst["ttft_s"]) == 3
        assert 0 < min(burst["ttft_s"]) <= max(burst["ttft_s"]) <= burst["wall_s"]
