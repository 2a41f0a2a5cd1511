"""`headrace bench`: the machine, and the engine on it."""

from __future__ import annotations

import click

from headrace.cli.bench_engine import engine
from headrace.cli.bench_machine import machine


@click.group()
def bench() -> None:
    """Measure this machine, and what the engine makes of it."""


bench.add_command(machine)
bench.add_command(engine)
