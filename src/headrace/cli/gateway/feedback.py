"""`headrace gateway feedback`: scores of answers, by model and variant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.gateway.ledger import ledger_options, ledger_path
from headrace.cli.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.gateway.feedback.report import Scores


@click.command(short_help="Report the scores that clients gave to answers.")
@ledger_options
@click.option("--by", default="model,variant", show_default=True,
              help="What to group by, separated by commas: model, target, variant, day, name, "
                  "key.")  # fmt: skip
@click.option(
    "--name", help="Only scores with this name, such as `quality`. [default: each name by itself]"
)
@click.option(
    "--since", metavar="DAY", help="Only requests from this day on, as 2026-11-01, in UTC."
)
@click.option("--until", metavar="DAY", help="Up to the end of this day.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each group.")
def feedback(
    config: Path,
    ledger: Path | None,
    by: str,
    name: str | None,
    since: str | None,
    until: str | None,
    as_json: bool,
) -> None:
    """Report the scores that clients gave to answers (POST /v1/feedback): how many, their mean, and
    an interval that holds the true mean with 95 % confidence.

    If all scores of a group are 0 or 1 the interval is Wilson's, else Student's. If the intervals
    of two variants do not overlap, one is better; if they do, nothing is decided yet.

    \b
    headrace gateway feedback
    headrace gateway feedback --by variant,day --name quality --since 2026-11-01
    headrace gateway feedback --by target --json
    """
    import msgspec

    from headrace.gateway.feedback.report import scores_by
    from headrace.gateway.ledger.days import days_of
    from headrace.gateway.ledger.schema import reading

    groups = [one.strip() for one in by.split(",") if one.strip()]
    # Scores of two names have nothing in common.
    if name is None and "name" not in groups:
        groups.append("name")
    days = days_of(since, until)
    with reading(ledger_path(config, ledger)) as connection:
        found = scores_by(connection, groups, name, days)
    if as_json:
        for one in found:
            told = msgspec.structs.asdict(one)
            click.echo(msgspec.json.encode({**told.pop("by"), **told}))
        return
    if not found:
        click.echo("there are no scores")
        return
    _print(groups, found)


def _print(groups: Sequence[str], found: Sequence[Scores]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*groups, "scores", "mean", "95 %")
    for one in found:
        between = "" if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"
        names = [visible(one.by[name]) for name in groups]
        table.add_row(*names, f"{one.count:,}", f"{one.mean:.3f}", between)
    Console().print(table)
