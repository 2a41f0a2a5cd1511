"""`headrace plan explain`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.plan.options import catalog_of

if TYPE_CHECKING:
    from headrace.plan.saved_plan import SavedPlan


@click.command(short_help="Show where a figure of a plan comes from.")
@click.argument("id", required=False)
@click.option(
    "--plan",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with a plan that --json printed. [default: the last plan]",
)
@click.option(
    "--catalog",
    "folders",
    multiple=True,
    type=click.Path(),
    help="Folder of catalog files that override the built-in ones. [may be repeated; default: the "
    "plan's]",
)
@click.option(
    "--measured",
    metavar="URL|FILE",
    help="Show what the plan predicts of drafts beside what was counted of them: by a running "
    "server, in a text of its /metrics, or in a result of `headrace bench load`.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(
    id: str | None,
    file: Path | None,
    folders: tuple[str, ...],
    measured: str | None,
    as_json: bool,
) -> None:
    """Show where the figure ID of a plan comes from, down to facts of the catalog.

    Each input is shown with its value, source, date and confidence; where sources disagree, with
    what each of them says, what is used and why. Without ID the figures of the plan are listed. The
    plan is the last one that `headrace plan fit`, `speed`, `cost`, `report`, `recommend` or
    `simulate` made.

    \b
    headrace plan explain
    headrace plan explain speed.tpot
    headrace plan explain --measured http://127.0.0.1:8000
    headrace plan explain cost.own --plan plan.json
    """
    from headrace.errors import ConfigError
    from headrace.plan.explanation import explain as explain_figure
    from headrace.plan.saved_plan import read_plan
    from headrace.plan.speed.measured_speculation import FIGURE

    plan = read_plan(file, os.environ)
    if not folders and file is None and plan.about is not None:
        folders = tuple(one for one in plan.about.catalogs if Path(one).is_dir())
    if measured is not None:
        if id not in (None, FIGURE):
            raise ConfigError(f"--measured is of drafts: omit {id}, or name {FIGURE}")
        _beside_measured(plan, measured, as_json)
        return
    if id is None:
        from headrace.cli.plan.explain_tree import figures_json, print_figures

        if as_json:
            click.echo(figures_json(plan))
        else:
            print_figures(plan)
        return
    found = explain_figure(plan, id, catalog_of(folders))
    if as_json:
        import json

        click.echo(json.dumps(found.as_dict(), indent=2))
        return
    from headrace.cli.plan.explain_tree import print_derivation

    print_derivation(found, plan)


def _beside_measured(plan: SavedPlan, source: str, as_json: bool) -> None:
    from headrace.cli.plan.metrics_text import metrics_text
    from headrace.plan.speed.draft_sources import read_draft_counts
    from headrace.plan.speed.measured_speculation import compared, comparison_dict

    counts = read_draft_counts("--measured", source, metrics_text)
    rows = compared(plan, counts)
    if as_json:
        import json

        click.echo(json.dumps(comparison_dict(source, counts, rows), indent=2))
        return
    from headrace.cli.plan.explain_tree import print_comparison

    print_comparison(plan, source, counts, rows)
