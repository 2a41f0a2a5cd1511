"""`headrace bench providers`."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.bench.console import wide_console
from headrace.cli.interrupt import INTERRUPTED
from headrace.cli.numbers import NumberRange
from headrace.http.event_loop import run_in_loop

if TYPE_CHECKING:
    from headrace.bench.providers.campaign import Campaign
    from headrace.bench.providers.figures import Matrix
    from headrace.bench.providers.settings import ProvidersFile

FAILURES, NOBODY = 1, 3
_SALT_BITS = 62

_file = click.Path(dir_okay=False, path_type=Path)


@click.command(
    epilog="Exit status: 0; 1 a provider answered nothing, or failed more than --max-error-rate; 2 "
    "wrong usage; 3 no provider answered; 130 Ctrl-C.",
    short_help="Compare providers with the same prompts, round after round.",
)
@click.argument("file", required=False, type=_file)
@click.option("--once", is_flag=True, help="Measure one round now, whatever the schedule is.")
@click.option(
    "--db",
    "database",
    type=_file,
    help="Database that keeps the measurements. [default: FILE's name with .db]",
)
@click.option("--report", "report_only", is_flag=True, help="Show what --db holds; send nothing.")
@click.option("--last", "last", help="Report only the last 90s, 10m, 24h, 7d.")
@click.option(
    "--append", is_flag=True, help="Continue in a database that was filled with other settings."
)
@click.option(
    "--compare",
    is_flag=True,
    help="Also send all prompts of the batch one after another: single_requests is batch_size.",
)
@click.option(
    "--max-error-rate",
    type=NumberRange(0, 1),
    default=1.0,
    show_default=True,
    help="Share of failed requests of a provider above which the exit status is 1.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
@click.option("--html", type=_file, help="Write the page here, again after each round.")
@click.option("--csv", "csv_file", type=_file, help="Write a line for each provider and round.")
@click.option("--quiet", is_flag=True, help="Print no line for each visit.")
def providers(file: Path | None, **given: Any) -> None:
    """Send the same prompts to the providers of FILE, round after round, and compare them.

    FILE is YAML, described in docs/bench-providers.md. Run again, the command continues where it
    was: measurements are kept in the database, and missed rounds stay missed.

    \b
    headrace bench providers providers.yaml --once
    headrace bench providers providers.yaml --html page.html --csv rounds.csv
    headrace bench providers providers.yaml --report --last 24h
    """
    from headrace.errors import ConfigError

    try:
        status = _report(file, given) if given["report_only"] else _measure(file, given)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if status:
        click.get_current_context().exit(status)


def _report(file: Path | None, given: dict[str, Any]) -> int:
    for flag in ("once", "append", "compare"):
        if given[flag]:
            raise click.UsageError(
                f"--report sends nothing, so --{flag} has no effect; omit one of them"
            )
    database = given["database"]
    if database is None and file is None:
        raise click.UsageError("--report needs FILE or --db")
    _show(database or _beside(file), given)
    return 0


def _measure(file: Path | None, given: dict[str, Any]) -> int:
    import msgspec

    from headrace.bench.providers.lock import held
    from headrace.bench.providers.read_settings import read_providers

    if file is None:
        raise click.UsageError(
            "FILE is missing: give the YAML file of providers, or --report --db DB"
        )
    settings = read_providers(file)
    if given["compare"]:
        settings = msgspec.structs.replace(settings, single_requests=settings.batch_size)
    _check_outputs(given)
    database = given["database"] or _beside(file)
    with held(database):
        campaign = _run(settings, file, database, given)
    _show(database, given)
    return _status(campaign, given["max_error_rate"])


def _run(settings: ProvidersFile, file: Path, database: Path, given: dict[str, Any]) -> Campaign:

    from headrace.bench.load.tokenization import load_tokenization
    from headrace.bench.providers.campaign import Campaign
    from headrace.bench.providers.start import make_plan
    from headrace.bench.providers.store import Store
    from headrace.bench.report.table import printable

    tokenization = load_tokenization(settings.tokenizer)
    store = Store(database)
    try:
        plan = make_plan(
            settings,
            store,
            folder=file.parent,
            tokenization=tokenization,
            environ=os.environ,
            entropy=lambda: secrets.randbits(_SALT_BITS),
            append=given["append"],
        )
        campaign = Campaign(
            plan,
            store,
            tell=lambda line: None if given["quiet"] else click.echo(printable(line), err=True),
            local=_local,
            after_round=lambda: _refresh(database, given),
        )
        run_in_loop(campaign.run(once=given["once"]))
    finally:
        store.close()
    if not given["quiet"]:
        click.echo(f"kept in {database}", err=True)
    return campaign


def _beside(file: Path | None) -> Path:
    """The database of a providers file that no other was named for."""
    assert file is not None
    return file.with_suffix(".db")


def _read(database: Path, given: dict[str, Any]) -> Matrix:
    from headrace.bench.providers.figures import matrix
    from headrace.bench.providers.read_store import read_store
    from headrace.bench.providers.settings import seconds

    since = None
    if given["last"] is not None:
        since = time.time() - seconds("--last", given["last"])
    return matrix(read_store(database, since=since))


def _show(database: Path, given: dict[str, Any]) -> None:
    import msgspec

    found = _read(database, given)
    _write_files(found, given)
    if given["as_json"]:
        click.echo(msgspec.json.encode(found))
        return
    from headrace.bench.providers.terminal import matrix_table

    console = wide_console()
    console.print(matrix_table(found, width=console.width))


def _refresh(database: Path, given: dict[str, Any]) -> None:
    """Files after a round; a disk that is full for a while ends no campaign."""
    from headrace.errors import HeadraceError

    if given["html"] is None and given["csv_file"] is None:
        return
    try:
        _write_files(_read(database, given), given)
    except HeadraceError as error:
        click.echo(f"headrace: {error}; the next round tries again", err=True)


def _write_files(found: Matrix, given: dict[str, Any]) -> None:
    from headrace.bench.report.files import write_text
    from headrace.errors import HeadraceError

    for flag, path, text in _texts(found, given):
        try:
            write_text(path, text)
        except OSError as error:
            raise HeadraceError(f"{flag} {path}: {error.strerror}") from error


def _texts(found: Matrix, given: dict[str, Any]) -> list[tuple[str, Path, str]]:
    texts = []
    if given["html"] is not None:
        from headrace.bench.providers.page import providers_page

        texts.append(("--html", given["html"], providers_page(found)))
    if given["csv_file"] is not None:
        from headrace.bench.providers.csv_file import csv_text

        texts.append(("--csv", given["csv_file"], csv_text(found)))
    return texts


def _check_outputs(given: dict[str, Any]) -> None:
    """Before hours of measuring: a folder that is not there, a time that is none."""
    from headrace.bench.providers.settings import seconds
    from headrace.errors import ConfigError

    if given["last"] is not None:
        seconds("--last", given["last"])
    for flag, name in (("--html", "html"), ("--csv", "csv_file"), ("--db", "database")):
        path: Path | None = given[name]
        if path is not None and not path.resolve().parent.is_dir():
            raise ConfigError(
                f"{flag} {path}: the folder does not exist; create it, or name another"
            )


def _status(campaign: Campaign, max_error_rate: float) -> int:
    """The exit status; why it is not 0 stands on stderr."""
    if campaign.interrupted:
        click.echo("interrupted: what was measured is kept", err=True)
        return INTERRUPTED
    measured = {name: one for name, one in campaign.tallies.items() if one.visits}
    silent = [name for name, one in measured.items() if not one.succeeded]
    if measured and len(silent) == len(measured):
        click.echo("headrace: no provider gave an answer", err=True)
        return NOBODY
    too_many = [
        f"{name} ({one.failed} of {one.requests} failed)"
        for name, one in measured.items()
        if one.failed > max_error_rate * one.requests
    ]
    if silent:
        click.echo(f"headrace: nothing succeeded at {', '.join(silent)}", err=True)
    if too_many:
        told = f"more than --max-error-rate {max_error_rate:g}"
        click.echo(f"headrace: {told}: {', '.join(too_many)}", err=True)
    return FAILURES if silent or too_many else 0


def _local(at: float) -> str:
    """A time of today without its date."""
    moment, today = time.localtime(at), time.localtime()
    form = "%H:%M:%S" if moment[:3] == today[:3] else "%Y-%m-%d %H:%M:%S"
    return time.strftime(form, moment)
