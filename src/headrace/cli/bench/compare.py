"""`headrace bench compare`: runs that are kept, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.bench.console import wide_console
from headrace.cli.bench.load.load_command import DEFINITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.bench.report.compare import Comparison, NamedRun
    from headrace.bench.report.saved_run import SavedRun
    from headrace.bench.slo import Slo

CROSSED = 1

# As `report.compare.METRICS`, which would be slow to import for --help; a test compares them.
METRICS = (
    *("ttft", "ttfot", "tpot", "itl", "stall", "e2e"),
    *("tps", "rps", "offered", "in_flight", "failed", "good", "goodput"),
    *("mbu", "mfu", "kv", "hits", "preemptions"),
)
_PATH = click.Path(path_type=Path)


@click.command(short_help="Compare saved runs with the first of them.")
@click.argument("results", nargs=-1, required=True, type=_PATH)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    type=click.Choice(METRICS),
    help="Show this metric alone; may be repeated. [default: all]",
)
@click.option(
    "--definitions",
    type=click.Choice(DEFINITIONS),
    default="headrace",
    show_default=True,
    help="Tool whose definitions of metrics are compared; each run's metrics are computed again "
    "from its records.",
)
@click.option(
    "--goodput",
    multiple=True,
    metavar="SLO",
    help="Limits that all runs are judged by. [default: those of the runs, where they are the "
    "same]",
)
@click.option(
    "--fail-if",
    "fail_if",
    multiple=True,
    metavar="RATIO",
    help="Exit with 1 if the whole interval of a ratio lies beyond this: `ttft_p95>1.10`, "
    "`e2e_p50@sent>1.2`, `tps<0.95`; may be repeated.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name of a run; give one for each. [default: its folder]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File for a page that shows the runs' distributions in the same plots.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of the resampling behind intervals.",
)
def compare(results: tuple[Path, ...], **given: Any) -> None:
    """Compare two or more runs that `headrace bench load --save` saved with the first of them.

    Each is a result.json or its folder, with requests.jsonl beside it. Each ratio has an interval
    that holds the true ratio with 95% confidence. Differences that make a comparison misleading
    (another load, other prompts, another machine, a client that was the limit) are listed first.

    \b
    headrace bench compare before after
    headrace bench compare before after --metric ttft --html page.html
    headrace bench compare before after --fail-if 'ttft_p95>1.10'
    """
    from headrace.errors import ConfigError

    try:
        failed = _compare(results, given)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if failed:
        click.get_current_context().exit(CROSSED)


def _compare(results: Sequence[Path], given: dict[str, Any]) -> bool:
    import random

    from headrace.bench.definitions import definition
    from headrace.bench.report import compare as comparing
    from headrace.bench.report.compare_sheets import comparison_json
    from headrace.bench.report.saved_run import read_saved_run
    from headrace.bench.report.threshold import parse_threshold
    from headrace.errors import ConfigError

    thresholds = [parse_threshold(text) for text in given["fail_if"]]
    if len(results) < 2:
        raise ConfigError("there is 1 run to compare; name two results or more")
    kept = [read_saved_run(path) for path in results]
    names = _names(results, given["names"])
    runs = [comparing.NamedRun(name, one.run) for name, one in zip(names, kept, strict=True)]
    slo = _common_slo(kept, given["goodput"])
    found = comparing.compare(
        runs,
        source=random.Random(given["seed"]),
        definition=definition(given["definitions"]),
        slo=slo,
        metrics=given["metrics"] or METRICS,
        thresholds=thresholds,
    )
    if given["as_json"]:
        click.echo(comparison_json(found), nl=False)
    else:
        _print(found)
    if given["html"] is not None:
        _write_comparison(given["html"], found, runs, slo)
    for one in found.outcomes:
        if one.fails:
            click.echo(f"headrace: --fail-if {one.threshold}: {one.told}", err=True)
    return found.fails


def _names(results: Sequence[Path], given: Sequence[str]) -> list[str]:
    """Of the folders, or of the files where folders have the same; else numbered."""
    from headrace.errors import ConfigError

    if given:
        if len(given) != len(results):
            raise ConfigError(
                f"--name was given {len(given)} times for {len(results)} results; give one for each"
            )
        return list(given)
    whole = [path.resolve() for path in results]
    folders = [path.name if path.is_dir() else path.parent.name for path in whole]
    for names in (folders, [path.stem for path in whole], [str(path) for path in results]):
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({at})" for at, name in enumerate(folders, start=1)]


def _common_slo(kept: Sequence[SavedRun], given: Sequence[str]) -> Slo | None:
    from headrace.bench.slo import parse_slo

    if given:
        return parse_slo(given)
    first = kept[0].slo
    if all(one.slo == first for one in kept):
        return first
    click.echo("the runs had different SLOs, so goodput is omitted: add --goodput", err=True)
    return None


def _print(found: Comparison) -> None:
    from headrace.bench.report.compare_sheets import comparison_sheets
    from headrace.bench.report.table import SheetTable, printable

    console = wide_console()
    for one in found.caveats:
        style = "yellow" if one.misleads else "dim"
        console.print(f"  {printable(one.text)}", style=style, markup=False, highlight=False)
    if found.caveats:
        console.print()
    for sheet in comparison_sheets(found):
        console.print(SheetTable(sheet))


def _write_comparison(
    path: Path, found: Comparison, runs: Sequence[NamedRun], slo: Slo | None
) -> None:
    from headrace.bench.report.compare_html import comparison_page
    from headrace.bench.report.files import write_text
    from headrace.errors import HeadraceError

    try:
        write_text(path, comparison_page(found, runs, slo=slo))
    except OSError as error:
        raise HeadraceError(f"--html {path}: {error.strerror}") from error
    click.echo(f"saved in {path}", err=True)
