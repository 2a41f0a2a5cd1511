"""The program that waits for a GPU runs to its end without one, on small shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_page import page

pytest.importorskip("torch", reason="the torch backend needs PyTorch")

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]


def check_shapes(found: dict[str, Any]) -> None:
    """Every case of both models was timed, with the start and the host's part of a step."""
    assert set(found["shapes"]) == {"small-BF16", "small-moe-F8_E4M3"}
    for model in found["shapes"].values():
        assert list(model["rows"]) == ["pp32 b1", "tg2 @ d32 b1", "tg2 @ d32 b2"]
        assert all(row["tokens_per_s"] > 0 for row in model["rows"].values())
        assert 0 < model["load_s"] < model["ready_s"] < model["first_token_s"]
        assert set(model["host_gap"]) == {"1", "2"}
        assert all(0 <= gap < 1 for gap in model["host_gap"].values())
    (beside,) = found["transformers"].values()
    assert all(rate > 0 for rate in beside["tokens_per_s"].values())


def test_all_parts_but_the_tests_themselves_run_on_a_processor(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    measured = ("roof", "kernels", "greedy", "tables", "shapes", "transformers")
    parts = [word for part in measured for word in ("--part", part)]
    command = [sys.executable, "-m", "benchmarks.gpu", str(out), "--device", "cpu"]
    done = subprocess.run(
        [*command, "--size", "small", *parts], cwd=ROOT, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert set(found) == {"machine", *measured}
    check_shapes(found)
    written = page(found)
    assert "small-moe-F8_E4M3" in written and "tg2 @ d32" in written and "vLLM" in written
    assert all(rate > 0 for rate in found["roof"].values())
    assert set(found["kernels"]) == {"products", "experts", "attention"}
    for kind in found["kernels"].values():
        assert all(each["as_alone"] and each["bytes_per_s"] > 0 for each in kind)
    assert [each["tokens"] for each in found["greedy"]] == [8] * 4
    for model in ("small-Q8_0", "small-experts"):
        tests = found["tables"][model]["tests"]
        names = [(test["test"], test["batch"]) for test in tests]
        assert names == [("pp32", 1), ("tg2 @ d32", 1), ("tg2 @ d32", 2)]
        assert all(test["share_of_read"] > 0 for test in tests)
