"""`python -m tools.soak`: 64 streams with random parameters on a small KV pool, codec by codec.

Streams are cancelled, left and timed out at random; what survives has to be, bit for bit, what the
same request gives alone, and memory, file handles and tasks have to stay flat. Exits with 1 where
anything did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tools.soak.soak import Length, Report, soak
from tools.soak.watch import Held, total

CODECS = ("BF16", "Q8_0", "Q4_K_M")


def main() -> int:
    """Soak every codec for its share of the time."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="in all")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument(
        "--round-seconds", type=float, default=15.0, help="between two quiet spells"
    )
    parser.add_argument("--check", type=int, default=150, help="survivors of a round run alone")
    parser.add_argument("--codec", action="append", choices=CODECS, help="default: all three")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the reports as JSON")
    options = parser.parse_args()
    codecs = options.codec or list(CODECS)
    length = Length(
        options.seconds / len(codecs), options.round_seconds, options.streams, options.check
    )
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as folder:
        reports = [
            asyncio.run(soak(codec, length, options.seed, Path(folder), console.print))
            for codec in codecs
        ]
    if options.json:
        sys.stdout.write(json.dumps([_fields(report) for report in reports], indent=1) + "\n")
    else:
        Console().print(_table(reports))
    problems = [f"{report.codec}: {problem}" for report in reports for problem in report.problems]
    for problem in problems[:20]:
        console.print(problem, style="red", markup=False)
    return 1 if problems else 0


def _fields(report: Report) -> dict[str, object]:
    return {
        "codec": report.codec,
        "seconds": round(report.seconds, 1),
        "counts": dict(report.counts),
        "preemptions": total(report.metrics, "vllm:num_preemptions_total"),
        "prefix_hit_tokens": total(report.metrics, "vllm:prefix_cache_hits_total"),
        "held": [held._asdict() for held in report.held],
        "problems": report.problems,
    }


def _table(reports: list[Report]) -> Table:
    table = Table("", *(report.codec for report in reports))
    names = dict.fromkeys(name for report in reports for name in report.counts)
    table.add_row("seconds", *(f"{report.seconds:.0f}" for report in reports))
    for name in names:
        table.add_row(name, *(f"{report.counts[name]:,}" for report in reports))
    for name in ("vllm:num_preemptions_total", "vllm:prefix_cache_hits_total"):
        table.add_row(name, *(f"{total(report.metrics, name):,.0f}" for report in reports))
    figures: tuple[tuple[str, Callable[[Held], float]], ...] = (
        ("server MB", lambda held: held.server_bytes / 1e6),
        ("engine MB", lambda held: held.engine_bytes / 1e6),
        ("server handles", lambda held: held.server_handles),
        ("engine handles", lambda held: held.engine_handles),
        ("server threads", lambda held: held.server_threads),
        ("tasks", lambda held: held.tasks),
    )
    for name, of in figures:
        ends = [(of(report.held[0]), of(report.held[-1])) for report in reports]
        table.add_row(name, *(f"{first:.0f} → {last:.0f}" for first, last in ends))
    table.add_row("problems", *(str(len(report.problems)) for report in reports))
    return table


if __name__ == "__main__":
    sys.exit(main())
