"""`headrace plan`: what fits, how fast and at what cost, with the error of each figure."""

from __future__ import annotations

import click

from headrace.cli.plan_calibrate import calibrate
from headrace.cli.plan_cost import cost
from headrace.cli.plan_explain import explain
from headrace.cli.plan_fit import fit
from headrace.cli.plan_lint import lint
from headrace.cli.plan_recommend import recommend
from headrace.cli.plan_reference import reference
from headrace.cli.plan_report import report
from headrace.cli.plan_simulate import simulate
from headrace.cli.plan_speed import speed


@click.group()
def plan() -> None:
    """Predict what a model needs, each figure with formula, inputs and error band."""


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
