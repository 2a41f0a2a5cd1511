"""Measuring a machine: which figures are taken, how often, and what is kept of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from headrace.bench.machine import KINDS, Spread, measure_machine
from headrace.telemetry.machine import DRAM_FOOTPRINT_BYTES, this_machine


class FakeProbe:
    """A machine with known limits whose third reading of everything is disturbed."""

    def __init__(self, level: str, threads: int) -> None:
        self.level, self.num_threads = level, threads
        self._readings = 0

    def _disturbed(self, figure: float) -> float:
        self._readings += 1
        return figure / 10 if self._readings % 3 == 0 else figure

    def read_bandwidth(self, footprint_bytes: int) -> float:
        return self._disturbed(1e9 * self.num_threads if footprint_bytes > 1000 else 1e12)

    def peak_rate(self, kind: str) -> float | None:
        if kind.startswith("bf16") and self.level == "old":
            return None
        return self._disturbed(KINDS.index(kind) * 1e9 + self.num_threads)


def test_every_level_thread_count_footprint_and_kind_is_measured() -> None:
    seen: list[tuple[int, int]] = []
    measured = measure_machine(
        FakeProbe,
        levels=["new", "old"],
        threads=[1, 2],
        footprints_bytes=[1000, DRAM_FOOTPRINT_BYTES],
        repeats=3,
        now=datetime(2026, 11, 20, tzinfo=UTC),
        progress=lambda done, total: seen.append((done, total)),
    )
    machine = measured.machine
    assert (machine.cpu, machine.cpus, machine.memory_bytes) == this_machine()
    assert machine.measured_at == "2026-11-20T00:00:00+00:00"
    assert [(r.level, r.threads, r.footprint_bytes) for r in machine.read] == [
        (level, threads, footprint)
        for level in ("new", "old")
        for threads in (1, 2)
        for footprint in (1000, DRAM_FOOTPRINT_BYTES)
    ]
    assert machine.read[0].bytes_per_s == 1e12, "the median leaves one disturbed reading out"
    assert measured.read_spreads[0] == Spread(1e12, 1e11, 1e12)
    kinds = [(p.level, p.threads, p.kind) for p in machine.peak]
    assert ("new", 2, "bf16") in kinds and ("old", 2, "bf16") not in kinds
    assert ("new", 1, "bf16_pairs") in kinds
    assert seen == [(n, 24) for n in range(1, 25)]
    assert machine.limits("new", 2, "BF16", "bf16") == (2e9, 1e9 + 2, "bf16", 2e9 + 2)
    assert machine.limits("old", 2, "BF16", "bf16") == (2e9, 2.0, "f32", 2.0)


def test_this_machine_has_limits() -> None:
    cpu = pytest.importorskip("headrace.ops.cpu", reason="the kernels are not built")
    probe = cpu.CpuOps("auto", 1)
    assert probe.read_bandwidth(1_000_000) > 1e8
    assert (probe.peak_rate("f32") or 0) > 1e8
    assert (probe.peak_rate("int8") or 0) > 1e8
    with pytest.raises(ValueError, match="int3"):
        probe.peak_rate("int3")
