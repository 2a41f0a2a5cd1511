"""`python -m tools.soak_gateway`: twelve hours of traffic through the gateway in twenty minutes.

Clients of four dialects come by chance, more at noon than at night; some leave, read slowly, have
no key or send nonsense. The two providers behind it answer, fail, hang and die in mid-answer, and
the file is read again every hour. After each hour memory, handles, threads and tasks are noted, and
have to stay flat; at the end every bill has to be what a provider told, and no secret may stand in
the log. Exits with 1 where anything did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tools.soak_gateway.soak import Length, Report, soak


def main() -> int:
    """Soak, and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak_gateway", description=__doc__)
    parser.add_argument("--hours", type=int, default=12, help="that are simulated")
    parser.add_argument("--seconds", type=float, default=1200.0, help="that it takes, in all")
    parser.add_argument("--per-hour", type=int, default=4000, help="requests, on average")
    parser.add_argument("--workers", type=int, default=1, help="processes of the gateway")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    options = parser.parse_args()
    length = Length(options.hours, options.seconds, options.per_hour, options.workers)
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as folder:
        report = asyncio.run(soak(length, options.seed, Path(folder), console.print))
    if options.json:
        sys.stdout.write(json.dumps(_fields(report), indent=1) + "\n")
    else:
        Console().print(_table(report))
        Console().print(_held(report))
    for problem in report.problems[:20]:
        console.print(problem, style="red", markup=False)
    return 1 if report.problems else 0


def _fields(report: Report) -> dict[str, object]:
    return {
        "seconds": round(report.seconds, 1),
        "counts": dict(sorted(report.counts.items())),
        "held": [held._asdict() for held in report.held],
        "problems": report.problems,
    }


def _table(report: Report) -> Table:
    table = Table("", "")
    table.add_row("seconds", f"{report.seconds:.0f}")
    for name, count in sorted(report.counts.items()):
        table.add_row(name, f"{count:,}")
    table.add_row("problems", str(len(report.problems)))
    return table


def _held(report: Report) -> Table:
    table = Table("hour", "memory, MB", "handles", "threads", "tasks", "resting connections")
    for hour, held in enumerate(report.held, 1):
        table.add_row(
            str(hour),
            f"{held.memory_bytes / 1e6:.1f}",
            *(str(one) for one in (held.handles, held.threads, held.tasks)),
            str(held.resting_connections),
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
