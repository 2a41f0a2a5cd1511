"""`headrace bench machine`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from headrace.cli.numbers import numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.bench.machine import MachineMeasurement, Probe
    from headrace.telemetry.machine import Machine


@click.command(short_help="Measure how fast this machine reads and multiplies.")
@click.option(
    "--backend",
    type=click.Choice(("auto", "cpu", "torch")),
    default="auto",
    help="Backend whose limits are measured, as for `serve`. [default: torch where --device names "
    "one of CUDA, else cpu]",
)
@click.option(
    "--device",
    default="auto",
    help="Device that is measured: cpu, cuda or cuda:N. [default: the CPU]",
)
@click.option(
    "--threads",
    callback=numbers,
    help="Thread counts, such as 1,2,4. [default: 1 and all CPUs this process may use]",
)
@click.option("--cpu-level", default="auto", help="Dispatch level, or `all`. [default: the best]")
@click.option(
    "--footprints",
    callback=numbers,
    help="Megabytes of the memory that is read repeatedly. [default: 1 to 2,000; MBU needs at "
    "least 512]",
)
@click.option(
    "--repeats",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Number of readings of each figure; the median is kept.",
)
@click.option(
    "--no-store", is_flag=True, help="Only print; keep the figures that are already stored."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def machine(
    backend: str,
    device: str,
    threads: list[int] | None,
    cpu_level: str,
    footprints: list[int] | None,
    repeats: int,
    no_store: bool,
    as_json: bool,
) -> None:
    """Measure how fast this machine reads and multiplies, and store it for MBU and MFU.

    Keep the machine otherwise idle. The result is stored for this user, in
    $XDG_CACHE_HOME/headrace/machine.json, beside those of other levels and thread counts; engines
    started afterwards at the same level with as many threads report their share of these limits.

    \b
    headrace bench machine
    headrace bench machine --device cuda
    headrace bench machine --cpu-level all --threads 1,2
    headrace bench machine --footprints 512,2000 --no-store --json
    """
    from headrace.bench.machine import measure_machine
    from headrace.cli.counting import counting

    probes = _probes(backend, device, cpu_level, threads)
    sizes = _footprints_bytes(footprints, probes.most_bytes)
    with counting("measuring") as progress:
        measured = measure_machine(
            probes.make,
            levels=probes.levels,
            threads=probes.threads,
            footprints_bytes=sizes,
            repeats=repeats,
            now=datetime.now(UTC),
            progress=progress,
        )
    if as_json:
        _print_machine_json(measured)
    else:
        _print_machine(measured)
    if not no_store:
        path = _store(measured.machine)
        click.echo(f"stored in {path}", err=as_json)
    if _is_unsteady(measured):
        click.echo(
            "readings of the same figure differ by more than half: something else was "
            "running; measure again when the machine is idle",
            err=True,
        )


class _Probes(NamedTuple):
    """The backend that is measured, at which levels and with how many threads."""

    make: Callable[[str, int], Probe]
    levels: list[str]
    threads: list[int]
    most_bytes: int
    """Of memory, to read."""


def _probes(backend: str, device: str, cpu_level: str, threads: list[int] | None) -> _Probes:
    """What the options name; raises ConfigError where they do not go together."""
    from headrace.engine.memory.available import available_memory_bytes
    from headrace.errors import ConfigError
    from headrace.ops import choose_backend, device_memory

    choice = choose_backend(backend, device)
    counts = sorted(set(threads or (1, len(os.sched_getaffinity(0)))))
    if choice.backend == "cpu":
        from headrace.ops.cpu import CpuOps

        levels = CpuOps.levels() if cpu_level == "all" else [CpuOps(cpu_level, 1).level]
        return _Probes(CpuOps, levels, counts, available_memory_bytes())
    if cpu_level != "auto":
        raise ConfigError(f"--cpu-level {cpu_level} is of the kernels; omit it with torch")
    from headrace.ops.torch.probe import TorchProbe

    memory = device_memory(choice)
    first = TorchProbe(choice.device)
    if memory is None:

        def of_processor(level: str, count: int) -> TorchProbe:
            return TorchProbe(choice.device, count)

        return _Probes(of_processor, [first.level], counts, available_memory_bytes())
    if threads:
        raise ConfigError(f"--threads is of processors, and --device is {device}: omit it")
    return _Probes(lambda level, count: first, [first.level], [1], memory.free_bytes)


def _footprints_bytes(megabytes: list[int] | None, most_bytes: int) -> list[int]:
    """What to read; ConfigError for nothing and for more than there is memory for."""
    from headrace.bench.machine import FOOTPRINTS_MB, MB
    from headrace.errors import ConfigError

    most = most_bytes // MB
    if megabytes is None:
        return [size * MB for size in FOOTPRINTS_MB if size <= most]
    for size in megabytes:
        if not 1 <= size <= most:
            raise ConfigError(
                f"--footprints {size} is not in 1 to {most}, the megabytes of memory available"
            )
    return [size * MB for size in megabytes]


def _store(measured: Machine) -> Path:
    """Keep it for MBU and MFU, beside what was measured of other levels and thread counts.

    ConfigError where this user may not write.
    """
    from headrace.errors import ConfigError
    from headrace.telemetry.machine import machine_path, store_machine, stored_machine

    earlier = stored_machine(os.environ)
    try:
        return store_machine(measured.beside(earlier) if earlier else measured, os.environ)
    except OSError as error:
        raise ConfigError(
            f"the measurement cannot be stored in {machine_path(os.environ)}: {error.strerror}; "
            "set XDG_CACHE_HOME to a folder you may write to, or use --no-store"
        ) from error


def _is_unsteady(measured: MachineMeasurement) -> bool:
    """Whether figures that MBU and MFU stand on were not the same from reading to reading."""
    from headrace.telemetry.machine import DRAM_FOOTPRINT_BYTES

    of_memory = [
        spread
        for one, spread in zip(measured.machine.read, measured.read_spreads, strict=True)
        if one.footprint_bytes >= DRAM_FOOTPRINT_BYTES
    ]
    return any(one.most > 1.5 * one.least for one in (*of_memory, *measured.peak_spreads))


def _print_machine_json(measured: MachineMeasurement) -> None:
    import msgspec

    click.echo(msgspec.json.encode(measured.machine))


def _print_machine(measured: MachineMeasurement) -> None:
    from rich.console import Console
    from rich.table import Table

    one = measured.machine
    console = Console(soft_wrap=True)
    console.print(f"{one.cpu}, {one.cpus} CPUs, {one.memory_bytes / 1e9:.1f} GB, {one.measured_at}")
    read = Table("level", "threads", "footprint", "read, GB/s", "least..most", box=None)
    for bandwidth, spread in zip(one.read, measured.read_spreads, strict=True):
        read.add_row(
            bandwidth.level,
            str(bandwidth.threads),
            f"{bandwidth.footprint_bytes / 1e6:,g} MB",
            f"{spread.median / 1e9:.1f}",
            f"{spread.least / 1e9:.1f}..{spread.most / 1e9:.1f}",
        )
    peak = Table("level", "threads", "operands", "peak, GOPS", "least..most", box=None)
    for rate, spread in zip(one.peak, measured.peak_spreads, strict=True):
        peak.add_row(
            rate.level,
            str(rate.threads),
            rate.kind,
            f"{spread.median / 1e9:,.0f}",
            f"{spread.least / 1e9:,.0f}..{spread.most / 1e9:,.0f}",
        )
    console.print(read)
    console.print(peak)
