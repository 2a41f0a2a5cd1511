"""What this machine can do at most, as `headrace bench machine` measured it, kept in one file.

A measurement belongs to the machine, the dispatch level and the number of threads it was taken
with; asked for any other it has no answer, so a share of the limit is either true or absent.
The file is `headrace/machine.json` under $XDG_CACHE_HOME (~/.cache).
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace.atomic_file import atomic_file
from headrace.telemetry.work import Work

DRAM_FOOTPRINT_BYTES = 512_000_000
"""Reads of at least this much come from memory, not from any cache of a machine in use today."""

PEAK_KINDS = {"F32": "f32", "F16": "f32", "BF16": "bf16"}
"""Which peak rate bounds products with weights of a codec; all others are quantised: int8."""

ATTENTION_KINDS = ("bf16_pairs", "bf16", "f32")
"""Which peak rate bounds attention whose K and V become bf16: the first that a level has. Pairs are
measured apart where products of bf16 have tiles, which attention has not."""


def attention_rate_of(
    rate_of: Callable[[str], float | None], kv_types: str = "bf16"
) -> float | None:
    """Operations per second of attention at a level, None where nothing of it was measured.

    rate_of: that of each kind there; None or 0 where it has none. kv_types: of K and V, as engines
    name them (`f32`, `int8,q4_0`, `fp8;bf16`, `q4_0+near`). What meets K or V of f32 is multiplied
    as f32, all else as ATTENTION_KINDS has it; half of the operations each where some are f32.
    """
    kinds = dict.fromkeys(
        ("f32",) if each.lower() == "f32" else ATTENTION_KINDS
        for each in re.split("[,;]", kv_types)
    )
    rates = [next(filter(None, map(rate_of, of)), 0.0) for of in kinds]
    if not all(rates):
        return None
    return rates[0] if len(rates) == 1 else len(rates) / sum(1 / rate for rate in rates)


DEVICE = "cuda "
"""Levels of devices begin so, and then have the device's name: "cuda NVIDIA H200". PyTorch on the
processor has the level "cpu"; all others are dispatch levels of the kernels."""


def is_of_kernels(level: str) -> bool:
    """Whether a level is of the kernels for processors, and not of PyTorch."""
    return level != "cpu" and not level.startswith(DEVICE)


class ReadBandwidth(msgspec.Struct, frozen=True):
    """Bytes per second read by `threads` threads together, over and over the same footprint."""

    level: str
    threads: int
    footprint_bytes: int
    bytes_per_s: float


class PeakRate(msgspec.Struct, frozen=True):
    """Operations per second (a multiply and an add are two) of `threads` threads together.

    kind: of operands, "f32", "bf16" or "int8"; "bf16_pairs" as in ATTENTION_KINDS.
    """

    level: str
    threads: int
    kind: str
    ops_per_s: float


class Machine(msgspec.Struct, frozen=True):
    """The measurements of one machine."""

    cpu: str
    cpus: int
    memory_bytes: int
    measured_at: str
    """Time of the newest figure, ISO 8601, UTC."""
    read: list[ReadBandwidth]
    peak: list[PeakRate]

    def beside(self, earlier: Machine) -> Machine:
        """This measurement, and what it did not measure of an earlier one of the same machine."""
        read = {
            (bandwidth.level, bandwidth.threads, bandwidth.footprint_bytes)
            for bandwidth in self.read
        }
        peak = {(rate.level, rate.threads, rate.kind) for rate in self.peak}
        kept_read = [
            bandwidth
            for bandwidth in earlier.read
            if (bandwidth.level, bandwidth.threads, bandwidth.footprint_bytes) not in read
        ]
        kept_peak = [
            rate for rate in earlier.peak if (rate.level, rate.threads, rate.kind) not in peak
        ]
        return msgspec.structs.replace(
            self, read=[*self.read, *kept_read], peak=[*self.peak, *kept_peak]
        )

    @property
    def of_kernels(self) -> Machine:
        """What of it is of the kernels for processors."""
        return self._of(is_of_kernels)

    @property
    def devices(self) -> list[str]:
        """Names of the devices that were measured."""
        levels = dict.fromkeys(reading.level for reading in self.read)
        return [level.removeprefix(DEVICE) for level in levels if level.startswith(DEVICE)]

    def of_device(self, name: str) -> Machine:
        """What of it is of the device of this name."""
        return self._of(lambda level: level == DEVICE + name)

    def _of(self, takes: Callable[[str], bool]) -> Machine:
        return msgspec.structs.replace(
            self,
            read=[reading for reading in self.read if takes(reading.level)],
            peak=[rate for rate in self.peak if takes(rate.level)],
        )

    def read_from(self, n_bytes: float) -> list[ReadBandwidth]:
        """Reads of the smallest footprint that holds so many bytes: from a cache where they lie in
        one, from memory where more are wanted than caches have. Empty where none was measured."""
        wanted = min(n_bytes, DRAM_FOOTPRINT_BYTES)
        holding = [read for read in self.read if read.footprint_bytes >= wanted]
        least = min((read.footprint_bytes for read in holding), default=0)
        if least >= DRAM_FOOTPRINT_BYTES:
            return holding
        return [read for read in holding if read.footprint_bytes == least]

    def attention_rate(self, kv_types: str) -> float | None:
        """Operations per second of attention over such K and V (`attention_rate_of`), of the
        fastest level and thread count; None where nothing of it was measured."""
        found = (
            attention_rate_of(self._peaks(*place).get, kv_types) or 0.0
            for place in {(peak.level, peak.threads) for peak in self.peak}
        )
        return max(found, default=0.0) or None

    def limits(self, level: str, threads: int, weight_codec: str, kv_types: str) -> Limits | None:
        """Those of an engine, or None where nothing was measured for it. kv_types: as
        `attention_rate_of` takes them."""
        kind = PEAK_KINDS.get(weight_codec, "int8")
        peaks = self._peaks(level, threads)
        if kind == "int8" and kind not in peaks and not is_of_kernels(level):
            kind = "bf16"  # such a device decodes quantised weights before it multiplies
        if kind == "bf16" and kind not in peaks:
            kind = "f32"  # such a level multiplies bf16 weights as f32
        read = [
            bandwidth.bytes_per_s
            for bandwidth in self.read
            if (bandwidth.level, bandwidth.threads) == (level, threads)
            and bandwidth.footprint_bytes >= DRAM_FOOTPRINT_BYTES
        ]
        if not read or kind not in peaks:
            return None
        attention = peaks[kind]
        if is_of_kernels(level):  # how attention of PyTorch or a device multiplies is not known
            attention = attention_rate_of(peaks.get, kv_types) or attention
        return Limits(max(read), peaks[kind], kind, attention)

    def _peaks(self, level: str, threads: int) -> dict[str, float]:
        """Operations per second by kind."""
        peaks: dict[str, float] = {}
        for rate in self.peak:
            if (rate.level, rate.threads) == (level, threads):
                peaks[rate.kind] = max(peaks.get(rate.kind, 0.0), rate.ops_per_s)
        return peaks


class Limits(NamedTuple):
    """Bytes per second from memory and operations per second, of one level and thread count."""

    bytes_per_s: float
    ops_per_s: float
    """Of products with the weights, by operands of `kind`."""
    kind: str
    attention_ops_per_s: float

    def least_s(self, work: Work) -> float:
        """Seconds that no implementation is quicker than: of reading or of computing, whichever
        takes longer."""
        computing_s = work.computing_s(self.ops_per_s, self.attention_ops_per_s)
        return max(work.bytes / self.bytes_per_s, computing_s)


def this_machine() -> tuple[str, int, int]:
    """Model of the CPU, CPUs of the machine, bytes of memory."""
    return _cpu_model(), os.cpu_count() or 1, _memory_bytes()


def machine_path(environ: Mapping[str, str]) -> Path:
    """Where the measurement of this user lies."""
    cache = environ.get("XDG_CACHE_HOME") or str(Path(environ.get("HOME", "/")) / ".cache")
    return Path(cache) / "headrace" / "machine.json"


def stored_machine(environ: Mapping[str, str]) -> Machine | None:
    """The measurement of this very machine; None where there is none, or it cannot be read."""
    try:
        machine = msgspec.json.decode(machine_path(environ).read_bytes(), type=Machine)
    except (OSError, msgspec.DecodeError):
        return None
    return machine if (machine.cpu, machine.cpus, machine.memory_bytes) == this_machine() else None


def store_machine(machine: Machine, environ: Mapping[str, str]) -> Path:
    """Write it for this user, whole or not at all; OSError where that cannot be."""
    path = machine_path(environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(machine)))
    return path


def _cpu_model() -> str:
    """As /proc/cpuinfo names it; machines without such a name are known by their architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    fields = [line.split(":", 1) for line in lines if ":" in line]
    for name in ("model name", "CPU part"):
        for field, value in fields:
            if field.strip() == name:
                return f"{platform.machine()} {value.strip()}"
    return platform.machine()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
