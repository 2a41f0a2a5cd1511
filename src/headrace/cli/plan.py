"""`headrace plan`: what fits, how fast and at what cost, with the error of each figure."""

from __future__ import annotations

import click

from headrace.cli.plan_cost import cost
from headrace.cli.plan_fit import fit
from headrace.cli.plan_speed import speed


@click.group()
def plan() -> None:
    """Predict what a model needs, each figure with formula, inputs and error band."""


plan.add_command(fit)
plan.add_command(speed)
plan.add_command(cost)
