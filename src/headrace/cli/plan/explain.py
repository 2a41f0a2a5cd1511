"""`headrace plan explain`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from headrace.cli.plan.options import catalog_of


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
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def explain(id: str | None, file: Path | None, folders: tuple[str, ...], as_json: bool) -> None:
    """Show where the figure ID of a plan comes from, down to facts of the catalog.

    Each input is shown with its value, source, date and confidence; where sources disagree, with
    what each of them says, what is used and why. Without ID the figures of the plan are listed. The
    plan is the last one that `headrace plan fit`, `speed`, `cost`, `report`, `recommend` or
    `simulate` made.

    \b
    headrace plan explain
    headrace plan explain speed.tpot
    headrace plan explain cost.own --plan plan.json
    """
    from headrace.plan.explanation import explain as explain_figure
    from headrace.plan.saved_plan import read_plan

    plan = read_plan(file, os.environ)
    if not folders and file is None and plan.about is not None:
        folders = tuple(one for one in plan.about.catalogs if Path(one).is_dir())
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
