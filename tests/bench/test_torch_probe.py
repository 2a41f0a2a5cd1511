"""The limits of a device by torch, on a processor: what is timed, where they are found again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli.bench.machine import machine as command
from headrace.config.settings import EngineConfig
from headrace.engine.load import load_engine
from headrace.telemetry.machine import stored_machine
from tests.tiny import write_tiny_gguf

torch = pytest.importorskip("torch", reason="the torch backend needs PyTorch")

from headrace.ops.torch.probe import TorchProbe  # noqa: E402

pytestmark = pytest.mark.torch


class Steps:
    """A clock on which each reading is `step_s` behind the last one."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s, self.count = 0.0, step_s, 0

    def __call__(self) -> float:
        self.count += 1
        self.now_s += self.step_s
        return self.now_s


def test_rates_are_work_over_time() -> None:
    clock = Steps(0.5)
    probe = TorchProbe("cpu", 1, size=16, least_s=0.5, clock=clock)
    assert (probe.level, probe.num_threads) == ("cpu", 1)
    assert probe.read_bandwidth(4000) == 4000 / 0.5
    assert probe.peak_rate("f32") == probe.peak_rate("bf16") == 2 * 16**3 / 0.5
    assert clock.count == 6, "one reading each"


def test_short_runs_are_timed_together() -> None:
    """Until the least time has passed: of one run, then of 64 times as many at most."""
    counted: list[int] = []
    probe = TorchProbe("cpu", 1, size=16, least_s=1.0, clock=Steps(0.01))

    def run() -> None:
        counted.append(0)
        probe._clock.step_s = 0.01 * min(len(counted), 200)  # type: ignore[attr-defined]

    seconds = probe.seconds_of(run)
    assert len(counted) > 100 and 0 < seconds <= 1.0 / 64


def test_what_the_device_does_not_multiply_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(one: Any, other: Any) -> Any:
        raise RuntimeError("not implemented for 'Char'")

    monkeypatch.setattr(torch, "_int_mm", refused)
    assert TorchProbe("cpu", 1, size=16, least_s=0.0).peak_rate("int8") is None


@pytest.mark.smoke
def test_what_is_measured_is_stored_and_an_engine_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("headrace.ops.torch.probe.CPU_SIZE", 64)
    given = ["--backend", "torch", "--device", "cpu", "--threads", "1", "--footprints", "512"]
    result = CliRunner().invoke(command, [*given, "--repeats", "1", "--json"])
    assert result.exit_code == 0, result.output
    found = stored_machine(os.environ)
    assert found is not None and {one.level for one in found.read} == {"cpu"}
    assert {one.kind for one in found.peak} >= {"f32", "bf16"}
    assert json.loads(result.stdout.splitlines()[0])["read"][0]["footprint_bytes"] == 512_000_000
    path = write_tiny_gguf(tmp_path, "llama", "F32")
    core, _ = load_engine(
        EngineConfig(model=str(path), backend="torch", device="cpu", threads=1,
                     num_gpu_blocks_override=8)
    )  # fmt: skip
    assert core.info().read_limit_bytes_per_s == found.read[0].bytes_per_s
    assert core.info().compute_limit_kind == "f32"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["--backend", "torch", "--device", "cpu", "--cpu-level", "avx2"],
            "--cpu-level avx2 is of",
        ),
        (["--device", "cuda:99"], "--device is cuda:99"),
        (["--backend", "cpu", "--device", "cuda"], "--backend cpu computes on processors"),
    ],
)
def test_options_that_do_not_go_together_are_refused(given: list[str], message: str) -> None:
    result = CliRunner().invoke(command, given)
    assert result.exit_code != 0 and message in str(result.exception)
