"""Figures as Markdown that can be pasted into docs, with the machine and the day below them."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from headrace import __version__
from headrace.telemetry.machine import this_machine


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table whose first column is of names and whose others are of figures.

    None is a dash. Raises ValueError where a row has another number of cells than there are
    columns.
    """
    lines = [_line(columns), "|" + "|".join(["---"] + ["---:"] * (len(columns) - 1)) + "|"]
    for row in rows:
        if len(row) != len(columns):
            raise ValueError(f"row {row[:1]} has {len(row)} cells, the table {len(columns)}")
        lines.append(_line(["-" if cell is None else cell for cell in row]))
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def number(value: float | None, digits: int = 2) -> str | None:
    """With so many digits behind the point, thousands apart; None stays None."""
    return None if value is None else f"{value:,.{digits}f}"


def surroundings(now: datetime) -> dict[str, Any]:
    """What figures depend on. load_average: of the minute before, when others were at work."""
    cpu, cpus, memory_bytes = this_machine()
    return {
        "date": now.date().isoformat(),
        "version": __version__,
        "cpu": cpu,
        "cpus": cpus,
        "usable_cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": memory_bytes,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def surroundings_line(facts: dict[str, Any]) -> str:
    """`surroundings` in a sentence."""
    cpus = f"{facts['cpus']} CPUs"
    if facts["usable_cpus"] != facts["cpus"]:
        cpus += f", {facts['usable_cpus']} of them usable"
    return (
        f"{facts['cpu']}, {cpus}, {facts['memory_bytes'] / 2**30:.0f} GiB, {facts['system']}, "
        f"Python {facts['python']}, headrace {facts['version']}, {facts['date']}; load average "
        f"when it began: {facts['load_average']}"
    )


def tell(text: str) -> None:
    """Progress; stdout is for results."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
