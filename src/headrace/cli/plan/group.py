"""`headrace plan`: what fits, how fast and at what cost, with the error of each figure."""

from __future__ import annotations

import click

from headrace.cli.plan.calibrate import calibrate
from headrace.cli.plan.cost import cost
from headrace.cli.plan.explain import explain
from headrace.cli.plan.fit import fit
from headrace.cli.plan.lint import lint
from headrace.cli.plan.recommend import recommend
from headrace.cli.plan.reference import reference
from headrace.cli.plan.report import report
from headrace.cli.plan.simulate import simulate
from headrace.cli.plan.speed import speed


@click.group()
def plan() -> None:
    """Predict what a model needs; each figure has its formula, inputs and error band."""


plan.add_command(fit)
plan.add_command(speed)
plan.add_command(cost)
plan.add_command(report)
plan.add_command(explain)
plan.add_command(calibrate)
plan.add_command(simulate)
plan.add_command(lint)
plan.add_command(recommend)
plan.add_command(reference)
