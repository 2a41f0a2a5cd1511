"""Options of what computes, for commands that spell out their own: `bench engine` and `eval`.

Those of `serve` are made of its settings (cli/options.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from headrace.cli.numbers import NumberRange

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--backend",
        type=click.Choice(("auto", "cpu", "torch", "reference")),
        default="auto",
        help="Backend that computes, as for `serve`. [default: auto]",
    ),
    click.option(
        "--device",
        default="auto",
        help="Device that computes: cpu, cuda or cuda:N. [default: the CPU]",
    ),
    click.option(
        "--gpu-memory-utilization",
        type=NumberRange(0, 1, min_open=True),
        default=0.9,
        show_default=True,
        help="Share of the memory of a CUDA device that may be filled.",
    ),
)


def device_options(command: F) -> F:
    """--backend, --device and --gpu-memory-utilization."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
