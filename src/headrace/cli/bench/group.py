"""`headrace bench`: the machine, the engine on it, endpoints under load."""

from __future__ import annotations

import click

from headrace.cli.bench.against import against
from headrace.cli.bench.compare import compare
from headrace.cli.bench.engine import engine
from headrace.cli.bench.load.command import load
from headrace.cli.bench.machine import machine
from headrace.cli.bench.mock import mock
from headrace.cli.bench.providers import providers
from headrace.cli.bench.report import report


@click.group()
def bench() -> None:
    """Measure this machine, the engine on it, and any endpoint under load."""


bench.add_command(machine)
bench.add_command(engine)
bench.add_command(mock)
bench.add_command(load)
bench.add_command(compare)
bench.add_command(report)
bench.add_command(providers)
bench.add_command(against)
