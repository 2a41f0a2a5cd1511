"""Dispatch levels: their names, forcing one, and what the probe says of each."""

from __future__ import annotations

import platform
from typing import get_args, get_type_hints

import pytest

from headrace.config.settings import EngineConfig
from headrace.errors import ConfigError
from headrace.ops.cpu import CpuOps, _native
from tests.ops.cpu.cases import LEVELS

BY_MACHINE = {
    "x86_64": ["amx", "avx512_bf16", "avx512", "avx_vnni", "avx2", "portable"],
    "aarch64": ["neon_dotprod", "neon", "portable"],
}
KNOWN = BY_MACHINE.get(platform.machine(), ["portable"])


def test_the_flag_takes_every_level_there_is() -> None:
    levels = get_type_hints(EngineConfig)["cpu_level"]
    every = {name for names in BY_MACHINE.values() for name in names}
    assert set(get_args(levels)) == {"auto", *every}


def test_levels_are_named_best_first() -> None:
    assert [name for name in KNOWN if name in LEVELS] == LEVELS
    assert LEVELS[-1] == "portable"
    assert CpuOps("auto", 1).level == LEVELS[0]


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_can_be_forced(level: str) -> None:
    assert CpuOps(level, 1).level == level


@pytest.mark.parametrize("level", ["sse9", *sorted(set(KNOWN) - set(LEVELS))])
def test_a_level_that_cannot_run_names_those_that_can(level: str) -> None:
    with pytest.raises(ConfigError) as raised:
        CpuOps(level, 1)
    message = str(raised.value)
    assert f"'{level}'" in message
    for name in ("auto", *LEVELS):
        assert name in message


@pytest.mark.parametrize("level", LEVELS)
def test_the_probe_knows_what_a_level_multiplies(level: str) -> None:
    native = _native.Backend(level, 1)
    assert native.peak_multiplies("f32") > 0
    assert native.peak_multiplies("int8") > 0
    assert (native.peak_multiplies("bf16") > 0) == (level in ("amx", "avx512_bf16"))
    assert (native.peak_multiplies("bf16_pairs") > 0) == (level == "amx")
    with pytest.raises(ValueError, match="kind f64 is not f32, bf16, int8 or bf16_pairs"):
        native.peak_multiplies("f64")


@pytest.mark.parametrize("megabytes", [0.001, 0.03, 1, 40])
def test_bandwidth_of_small_and_large_footprints(megabytes: float) -> None:
    for threads in (1, 3):
        assert _native.Backend("auto", threads).read_bandwidth(megabytes) > 1e8


@pytest.mark.parametrize("megabytes", [0, -1, 1e9])
def test_a_footprint_out_of_range_is_refused(megabytes: float) -> None:
    with pytest.raises(ValueError, match="megabytes"):
        _native.Backend("auto", 1).read_bandwidth(megabytes)
