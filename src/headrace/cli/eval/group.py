"""`headrace eval`: how good a checkpoint is, alone and beside another."""

from __future__ import annotations

import click

from headrace.cli.eval.measures import kl, perplexity
from headrace.cli.eval.report import report
from headrace.cli.eval.tasks import tasks
from headrace.cli.eval.tensors import tensors


@click.group("eval")
def evaluate() -> None:
    """Measure how good a checkpoint is, alone or compared with another."""


evaluate.add_command(perplexity)
evaluate.add_command(kl)
evaluate.add_command(tensors)
evaluate.add_command(tasks)
evaluate.add_command(report)
