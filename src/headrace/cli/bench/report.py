"""`headrace bench report`: a run, sweep or search that is kept, shown anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.bench.console import wide_console
from headrace.cli.bench.load.load_command import DEFINITIONS

if TYPE_CHECKING:
    from headrace.bench.definitions import Definition
    from headrace.bench.load_point import LoadPoint
    from headrace.bench.report.saved_run import SavedRun
    from headrace.bench.slo import Slo
    from headrace.bench.summary import Summary


@click.command(short_help="Show a saved run again, or under other definitions.")
@click.argument("result", type=click.Path(path_type=Path))
@click.option(
    "--definitions",
    type=click.Choice(DEFINITIONS),
    help="Tool whose definitions of the metrics are used. [default: as in the run]",
)
@click.option(
    "--goodput", multiple=True, metavar="SLO", help="Limits to judge by. [default: the run's]"
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="File for the page.")
@click.option(
    "--save",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for result.json, requests.jsonl and the other files, written again; works for a "
    "run that was killed, too.",
)
def report(result: Path, **given: Any) -> None:
    """Show a saved run again, under any tool's definitions or another SLO.

    RESULT is a result.json, or the folder that `headrace bench load --save` wrote. All runs of a
    sweep or search are read. If the client was killed, the folder has the requests that had ended
    by then, and the report says that it is partial.

    \b
    headrace bench report run
    headrace bench report run --definitions vllm --goodput ttft:500
    headrace bench report run/result.json --html page.html
    """
    from headrace.errors import ConfigError

    try:
        _report(result, given)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _report(result: Path, given: dict[str, Any]) -> None:
    from headrace.bench.definitions import definition
    from headrace.bench.report.saved_run import read_saved_run
    from headrace.bench.report.series import series_points
    from headrace.bench.slo import parse_slo
    from headrace.bench.summary import summarize

    kept = read_saved_run(result)
    told = kept.run.about.get("definitions")
    under = definition(given["definitions"] or (told if isinstance(told, str) else "headrace"))
    slo = parse_slo(given["goodput"]) if given["goodput"] else kept.slo
    summary = summarize(kept.run, definition=under, slo=slo, prices=kept.prices)
    points = []
    if kept.series is not None and kept.series_folder is not None:
        points = list(series_points(kept.series_folder, kept.series, under, slo))
    _show(kept, summary, points, given["as_json"])
    if kept.partial:
        click.echo(f"partial: {kept.partial}", err=True)
    _write(kept, summary, points, slo, under, given)


def _show(kept: SavedRun, summary: Summary, points: list[LoadPoint], as_json: bool) -> None:
    import msgspec

    from headrace.bench.report.load_sheets import loads, search_steps
    from headrace.bench.report.table import sheet_table, summary_table

    series = kept.series
    if as_json:
        facts: dict[str, Any] = {"about": kept.run.about, "summary": summary}
        if kept.partial:
            facts["partial"] = kept.partial
        if series is not None:
            facts[series.kind] = points if series.search is None else series.search
        click.echo(msgspec.json.encode(facts))
        return
    console = wide_console()
    console.print(summary_table(summary))
    if len(points) > 1:
        console.print()
        console.print(sheet_table(loads(points), tight=True))
    if series is not None and series.search is not None:
        console.print(sheet_table(search_steps(series.search), tight=True))


def _write(
    kept: SavedRun,
    summary: Summary,
    points: list[LoadPoint],
    slo: Slo | None,
    under: Definition,
    given: dict[str, Any],
) -> None:
    """The page and the files that were asked for."""
    from headrace.bench.report.files import write_run, write_text
    from headrace.bench.report.html import report_page
    from headrace.errors import HeadraceError

    folder, html = given["save"], given["html"]
    if folder is None and html is None:
        return
    series = kept.series
    page = report_page(
        kept.run,
        summary,
        slo=slo,
        sweep=points,
        search=None if series is None else series.search,
        attainment=None if series is None else series.attainment,
        notes=[kept.partial] if kept.partial else [],
    )
    try:
        if folder is not None:
            write_run(
                folder,
                kept.run,
                summary,
                slo=slo,
                definition=under,
                vllm_keys=kept.vllm_keys,
                vllm_form=kept.vllm_form,
            )
            write_text(folder / "report.html", page)
        if html is not None:
            write_text(html, page)
    except OSError as error:
        raise HeadraceError(f"{error.filename or folder or html}: {error.strerror}") from error
    click.echo(f"saved in {' and '.join(str(one) for one in (folder, html) if one)}", err=True)
