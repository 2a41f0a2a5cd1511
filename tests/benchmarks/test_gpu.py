"""The program that waits for a GPU runs to its end without one, on small shapes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu_page import page
from benchmarks.gpu_pieces import BEGUN, FAILED, Figures, run_apart

pytest.importorskip("torch", reason="the torch backend needs PyTorch")

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"Q8_0", "Q4_0", "Q4_K", "Q6_K", "MXFP4", "F8_E4M3", "BF16"}


def check_shapes(found: dict[str, Any]) -> None:
    """Every case of both models was timed, with the start and the host's part of a step."""
    assert set(found["shapes"]) == {"small-BF16", "small-moe-F8_E4M3"}
    for model in found["shapes"].values():
        assert list(model["rows"]) == ["pp32 b1", "tg2 @ d32 b1", "tg2 @ d32 b2"]
        assert all(row["tokens_per_s"] > 0 for row in model["rows"].values())
        (start,) = model["starts"].values()
        assert 0 < start["load_s"] < start["ready_s"] < start["first_token_s"]
        for gaps in (model["host_gap"], model["host_gap_waiting"]):
            assert set(gaps) == {"1", "2"}
            assert all(0 <= gap < 1 for gap in gaps.values())
    beside = found["transformers"]["small"]["eager"]
    assert all(rate > 0 for rate in beside["tokens_per_s"].values())


def check_kernels(found: dict[str, Any]) -> None:
    """Of every kind: rows are what they are alone, and within the bound of any order of a sum."""
    assert set(found) == {"products", "experts", "attention"}
    assert set(found["products"]) == set(found["experts"]) == KINDS
    for kinds in found.values():
        for shapes in kinds.values():
            assert all(each["as_alone"] and each["bytes_per_s"] > 0 for each in shapes.values())
    for shapes in found["products"].values():
        assert all(0 < each["error"] < 256 + 1 for each in shapes.values())


def measured(out: Path, *parts: str) -> dict[str, Any]:
    """What the file has once these parts were asked for."""
    asked = [word for part in parts for word in ("--part", part)]
    command = [sys.executable, "-m", "benchmarks.gpu", str(out), "--device", "cpu"]
    done = subprocess.run(
        [*command, "--size", "small", *asked], cwd=ROOT, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def test_all_parts_but_the_tests_themselves_run_on_a_processor(tmp_path: Path) -> None:
    parts = ("roof", "kernels", "greedy", "tables", "shapes", "transformers")
    out = tmp_path / "out.json"
    found = measured(out, *parts)
    assert set(found) == {"machine", *parts}
    assert FAILED not in out.read_text()
    check_shapes(found)
    check_kernels(found["kernels"])
    written = page(found)
    assert "small-moe-F8_E4M3" in written and "tg2 @ d32" in written and "vLLM" in written
    assert "Failed" not in written and "Q4_K, 17 rows" in written
    assert all(rate > 0 for rate in found["roof"].values())
    assert [each["tokens"] for each in found["greedy"]] == [8] * 4
    for model in ("small-Q8_0", "small-experts"):
        rows = found["tables"][model]["rows"]
        assert list(rows) == ["pp32 b1", "tg2 @ d32 b1", "tg2 @ d32 b2"]
        assert all(row["share_of_read"] > 0 for row in rows.values())
        assert found["tables"][model]["start"]["first_token_s"] > 0
    written_at = out.stat().st_mtime_ns
    again = measured(out, "roof", "kernels", "greedy", "shapes", "transformers")
    assert again == found and out.stat().st_mtime_ns > written_at


def late() -> float:
    return time.monotonic() + 60


def test_what_fails_is_entered_and_the_rest_goes_on(tmp_path: Path) -> None:
    figures = Figures(tmp_path / "out.json", late())

    def broken() -> float:
        raise ValueError("a kernel that does not compile")

    assert not figures.measure(("kernels", "a"), broken)
    assert figures.measure(("kernels", "b"), lambda: 2.5)
    assert not figures.measure(("kernels", "a"), lambda: 1.5)  # is not measured again
    read = Figures(tmp_path / "out.json", late())
    assert read.get("kernels", "b") == 2.5 and read.get("kernels", "a") is None
    assert "a kernel that does not compile" in read.found["kernels"]["a"][FAILED]
    read.forget_failed()
    assert read.found == {"kernels": {"b": 2.5}}
    over = Figures(tmp_path / "out.json", time.monotonic() - 1)
    assert not over.measure(("kernels", "c"), lambda: 1.0) and not over.has("kernels", "c")


APART = """
import os, sys, time
from pathlib import Path
from benchmarks.gpu_pieces import Figures
figures = Figures(Path(sys.argv[1]), float(sys.argv[2]))
figures.measure(("a",), lambda: 1)
figures.measure(("b",), lambda: os._exit(9))
figures.measure(("c",), lambda: 3)
figures.measure(("d",), lambda: time.sleep(300))
figures.measure(("e",), lambda: 5)
"""


def test_what_ends_its_process_or_never_ends_is_entered_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.gpu_pieces.GRACE_S", 1.0)
    monkeypatch.chdir(ROOT)
    out, ends_s = tmp_path / "out.json", time.monotonic() + 8
    command = [sys.executable, "-c", APART, str(out), str(ends_s)]
    run_apart(command, out, tmp_path / "log", ends_s)
    found = json.loads(out.read_text())
    assert found["a"] == 1 and found["c"] == 3 and "e" not in found and BEGUN not in found
    assert "ended with 9" in found["b"][FAILED]
    assert "in time" in found["d"][FAILED]
