"""The program that waits for a GPU runs to its end without one, on small shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the torch backend needs PyTorch")

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]


def test_all_parts_but_the_tests_themselves_run_on_a_processor(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    parts = [word for part in ("roof", "kernels", "greedy", "tables") for word in ("--part", part)]
    command = [sys.executable, "-m", "benchmarks.gpu", str(out), "--device", "cpu"]
    done = subprocess.run(
        [*command, "--size", "small", *parts], cwd=ROOT, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert set(found) == {"machine", "roof", "kernels", "greedy", "tables"}
    assert all(rate > 0 for rate in found["roof"].values())
    assert set(found["kernels"]) == {"products", "experts", "attention"}
    for kind in found["kernels"].values():
        assert all(one["as_alone"] and one["bytes_per_s"] > 0 for one in kind)
    assert [one["tokens"] for one in found["greedy"]] == [8] * 4
    for model in ("small-Q8_0", "small-experts"):
        tests = found["tables"][model]["tests"]
        names = [(one["test"], one["batch"]) for one in tests]
        assert names == [("pp32", 1), ("tg2 @ d32", 1), ("tg2 @ d32", 2)]
        assert all(one["share_of_read"] > 0 for one in tests)
