"""`headrace bench machine`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.numbers import numbers

if TYPE_CHECKING:
    from headrace.bench.machine import Measured


@click.command()
@click.option(
    "--threads",
    callback=numbers,
    help="Thread counts, such as 1,2,4. [default: 1 and all CPUs this process may use]",
)
@click.option("--cpu-level", default="auto", help="Dispatch level, or `all`. [default: the best]")
@click.option(
    "--footprints",
    callback=numbers,
    help="Megabytes read over and over. [default: 1 to 2,000; MBU needs at least 512]",
)
@click.option(
    "--repeats",
    type=click.IntRange(1, 100),
    default=5,
    show_default=True,
    help="Readings of each figure; the median is kept.",
)
@click.option("--no-store", is_flag=True, help="Print only; keep what was stored before.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def machine(
    threads: list[int] | None,
    cpu_level: str,
    footprints: list[int] | None,
    repeats: int,
    no_store: bool,
    as_json: bool,
) -> None:
    """Measure what this machine can read and multiply, and keep it for MBU and MFU.

    Nothing else should run meanwhile. The result is stored for this user, in
    $XDG_CACHE_HOME/headrace/machine.json; engines started afterwards at the same level with as
    many threads report their share of these limits.
    """
    from headrace.bench.machine import FOOTPRINTS_MB, MB, measure_machine
    from headrace.cli.counting import counting
    from headrace.ops.cpu import CpuOps
    from headrace.telemetry.machine import store_machine

    levels = CpuOps.levels() if cpu_level == "all" else [CpuOps(cpu_level, 1).level]
    all_cpus = len(os.sched_getaffinity(0))
    with counting("measuring") as progress:
        measured = measure_machine(
            CpuOps,
            levels=levels,
            threads=sorted(set(threads or (1, all_cpus))),
            footprints_bytes=[size * MB for size in footprints or FOOTPRINTS_MB],
            repeats=repeats,
            now=datetime.now(UTC),
            progress=progress,
        )
    path = None if no_store else store_machine(measured.machine, os.environ)
    if as_json:
        _print_machine_json(measured)
    else:
        _print_machine(measured, path)


def _print_machine_json(measured: Measured) -> None:
    import msgspec

    click.echo(msgspec.json.encode(measured.machine))


def _print_machine(measured: Measured, path: Path | None) -> None:
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
    if path is not None:
        console.print(f"stored in {path}")
