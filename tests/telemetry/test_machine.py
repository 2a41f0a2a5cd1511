"""Stored measurements of a machine: found again, and only where they apply."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.telemetry.machine import (
    DRAM_FOOTPRINT_BYTES,
    Limits,
    Machine,
    PeakRate,
    ReadBandwidth,
    attention_rate_of,
    machine_path,
    store_machine,
    stored_machine,
    this_machine,
)
from headrace.telemetry.work import Work


def measured() -> Machine:
    return Machine(
        *this_machine(),
        measured_at="2026-11-20T12:00:00+00:00",
        read=[
            ReadBandwidth("avx512", 2, 1_000_000, 9e11),
            ReadBandwidth("avx512", 2, DRAM_FOOTPRINT_BYTES, 8e10),
        ],
        peak=[PeakRate("avx512", 2, "f32", 5e11), PeakRate("avx512", 2, "int8", 2e12)],
    )


def test_what_was_stored_is_found(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert stored_machine(environ) is None
    assert store_machine(measured(), environ) == tmp_path / "headrace" / "machine.json"
    assert stored_machine(environ) == measured()
    assert machine_path({"HOME": "/home/x"}) == Path("/home/x/.cache/headrace/machine.json")


def test_another_machine_and_a_damaged_file_have_no_measurement(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    store_machine(msgspec.structs.replace(measured(), cpu="another"), environ)
    assert stored_machine(environ) is None
    for content in (b"", b"{}", b"\xff\x00", b'{"cpu": 3}'):
        machine_path(environ).write_bytes(content)
        assert stored_machine(environ) is None


def test_reads_are_of_the_smallest_footprint_that_holds_the_bytes() -> None:
    machine = measured()
    assert [each.bytes_per_s for each in machine.read_from(5e5)] == [9e11]
    assert [each.bytes_per_s for each in machine.read_from(1e6)] == [9e11]
    assert [each.bytes_per_s for each in machine.read_from(2e6)] == [8e10]
    assert [each.bytes_per_s for each in machine.read_from(9e12)] == [8e10]
    assert msgspec.structs.replace(machine, read=[]).read_from(1e6) == []


AMX = [PeakRate("amx", 2, kind, rate) for kind, rate in (
    ("f32", 5e11), ("bf16", 8e12), ("bf16_pairs", 1e12), ("int8", 16e12),
)]  # fmt: skip
"""Tiles multiply bf16 eight times as fast as pairs do."""


def test_attention_has_the_rate_of_what_it_multiplies_by() -> None:
    machine = measured()
    assert machine.attention_rate("bf16") == 5e11, "no bf16 multiply there"
    pairs = PeakRate("avx512_bf16", 2, "bf16", 9e11)
    faster = msgspec.structs.replace(machine, peak=[*machine.peak, pairs])
    assert faster.attention_rate("bf16") == faster.attention_rate("int8,q4_0") == 9e11
    tiles = msgspec.structs.replace(machine, peak=[*faster.peak, *AMX])
    assert tiles.attention_rate("bf16") == tiles.attention_rate("q4_0+near") == 1e12
    assert msgspec.structs.replace(machine, peak=[]).attention_rate("bf16") is None


def test_attention_over_f32_has_the_rate_of_f32() -> None:
    rates = {"f32": 3e11, "bf16": 6e11}
    assert attention_rate_of(rates.get, "bf16") == attention_rate_of(rates.get, "fp8;bf16") == 6e11
    assert attention_rate_of(rates.get, "f32") == attention_rate_of(rates.get, "F32,F32") == 3e11
    # Half of the operations take twice as long as the other half.
    assert attention_rate_of(rates.get, "f32,bf16") == pytest.approx(4e11)
    assert attention_rate_of({"bf16": 6e11}.get, "f32") is None
    tiles = msgspec.structs.replace(measured(), peak=AMX)
    assert tiles.attention_rate("f32") == 5e11
    assert tiles.limits("amx", 2, "Q8_0", "f32") is None, "no memory was read at that level"


def test_limits_are_those_of_level_threads_and_codec() -> None:
    machine = measured()
    assert machine.limits("avx512", 2, "F16", "bf16") == (8e10, 5e11, "f32", 5e11)
    assert machine.limits("avx512", 2, "Q4_K", "bf16") == (8e10, 2e12, "int8", 5e11)
    no_bf16 = machine.limits("avx512", 2, "BF16", "bf16")
    assert no_bf16 == (8e10, 5e11, "f32", 5e11), "no bf16 multiply there"
    faster = msgspec.structs.replace(
        machine, peak=[*machine.peak, PeakRate("avx512", 2, "bf16", 1e12)]
    )
    assert faster.limits("avx512", 2, "BF16", "bf16") == (8e10, 1e12, "bf16", 1e12)
    assert faster.limits("avx512", 2, "Q8_0", "q8_0") == (8e10, 2e12, "int8", 1e12)
    assert faster.limits("avx512", 2, "Q8_0", "f32") == (8e10, 2e12, "int8", 5e11)
    assert machine.limits("avx512", 1, "F32", "f32") is None
    assert machine.limits("portable", 2, "F32", "f32") is None


def test_nothing_is_quicker_than_reading_or_computing_each_at_its_rate() -> None:
    limits = Limits(bytes_per_s=100.0, ops_per_s=1000.0, kind="int8", attention_ops_per_s=250.0)
    # 900 operations of products take 0.9 s, 500 of attention 2 s.
    assert limits.least_s(Work(100, 1400, 500)) == pytest.approx(2.9)
    assert limits.least_s(Work(500, 1400, 500)) == 5
    assert Work(0, 1400, 500).computing_s(1000.0, None) == pytest.approx(1.4)


def test_a_measurement_leaves_what_it_did_not_measure() -> None:
    again = msgspec.structs.replace(
        measured(),
        measured_at="2026-11-21T12:00:00+00:00",
        read=[ReadBandwidth("avx2", 2, DRAM_FOOTPRINT_BYTES, 7e10)],
        peak=[PeakRate("avx2", 2, "f32", 2e11), PeakRate("avx512", 2, "int8", 1e12)],
    )
    both = again.beside(measured())
    assert both.measured_at == again.measured_at
    assert both.limits("avx2", 2, "F32", "f32") == (7e10, 2e11, "f32", 2e11)
    assert both.limits("avx512", 2, "F32", "f32") == (8e10, 5e11, "f32", 5e11)
    newer = both.limits("avx512", 2, "Q8_0", "f32")
    assert newer == (8e10, 1e12, "int8", 5e11), "the newer figure"
    assert again.beside(again) == again


def test_devices_are_apart_from_the_kernels() -> None:
    """Beside each other in one file; "cpu" is torch on the processor."""
    of_card = Machine(
        *this_machine(), measured_at="2026-11-21T12:00:00+00:00",
        read=[ReadBandwidth("cuda NVIDIA H200", 1, DRAM_FOOTPRINT_BYTES, 4e12),
              ReadBandwidth("cpu", 2, DRAM_FOOTPRINT_BYTES, 5e10)],
        peak=[PeakRate("cuda NVIDIA H200", 1, "bf16", 8e14), PeakRate("cpu", 2, "f32", 1e11)],
    )  # fmt: skip
    both = of_card.beside(measured())
    assert both.devices == ["NVIDIA H200"] and measured().devices == []
    assert [one.level for one in both.of_kernels.read] == ["avx512", "avx512"]
    assert both.of_device("NVIDIA H200").read == of_card.read[:1]
    assert both.of_device("NVIDIA H100").read == []
    # Where no products of int8 were measured quantised weights are multiplied in 16 bits, or 32.
    # How their attention multiplies is not known.
    assert both.limits("cuda NVIDIA H200", 1, "Q4_K", "f32") == (4e12, 8e14, "bf16", 8e14)
    assert both.limits("cpu", 2, "Q4_K", "bf16") == (5e10, 1e11, "f32", 1e11)
    assert both.limits("avx512", 2, "Q4_K", "bf16") == (8e10, 2e12, "int8", 5e11)
