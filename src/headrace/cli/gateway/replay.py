"""`headrace gateway replay`: logged requests sent once more, to other models."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.gateway.ledger import dollars
from headrace.cli.gateway.requests import CONFIG, reader_at, record_at
from headrace.cli.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.gateway.replaying.answer import Answer, ReplayResult
    from headrace.gateway.request_log.record import LogRecord

_WIDE_COLUMNS = 240
# Records with bodies that are in memory at once.
_PAGE = 50
# What was not answered then is nothing to compare answers with.
_UNANSWERED = ("refused", "failed")


@click.command(short_help="Send a logged request to other models and compare.")
@click.argument("id", required=False)
@CONFIG
@click.option(
    "--model",
    "models",
    required=True,
    help="The model to send to now: a model of the gateway, or several separated by commas.",
)
@click.option(
    "--url", help="Address of the running gateway. [default: where the file says it listens]"
)
@click.option("--key", help="A key of the gateway: env:NAME, file:PATH, or the key itself.")
@click.option("--since", metavar="DAY", help="Without ID: only requests from this day on, in UTC.")
@click.option("--of", "of_model", metavar="MODEL", help="Without ID: only requests of this model.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True,
              help="Without ID: the newest requests, this many at most.")  # fmt: skip
@click.option(
    "--even-if-redacted",
    is_flag=True,
    help="Send requests whose values were redacted when they were stored.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each request.")
def replay(
    id: str | None,
    config: Path,
    models: str,
    url: str | None,
    key: str | None,
    since: str | None,
    of_model: str | None,
    limit: int,
    even_if_redacted: bool,
    as_json: bool,
) -> None:
    """Send a logged request to other models, and compare their answers with the logged one.

    Only the model changes, and streaming is off. The request goes to a running gateway and is
    billed there; the gateway's cache is not used. Without ID the newest answered requests are sent
    one after the other, and a summary shows what each model took; requests that were refused or
    failed are omitted and counted. Times are the gateway's own, from its request log.

    A request whose body was cut or not kept cannot be sent; one in which values were replaced is
    refused unless --even-if-redacted.

    \b
    headrace gateway replay 5f0c1a9e2b7d4c38 --model small,openai/gpt-5-mini --key env:KEY
    headrace gateway replay --since 2026-11-01 --of chat --limit 50 --model small --key env:KEY
    """
    import msgspec

    from headrace.errors import ConfigError
    from headrace.gateway.building.request_log import sides_of
    from headrace.gateway.replaying.answer import replayed
    from headrace.gateway.replaying.logged_time import LoggedTime
    from headrace.gateway.replaying.replay import ReplayError, poster
    from headrace.gateway.settings.secret import Sources, read_secret

    names = [one.strip() for one in models.split(",") if one.strip()]
    if not names:
        raise ConfigError("--model: name a model, or several separated by commas")
    sources = Sources(os.environ, config.parent)
    secret = None if key is None else read_secret(key, sources).reveal()
    post = poster(url or _url(config), secret, LoggedTime(reader_at(config).find))
    done = []
    for record in [record_at(config, id)] if id else _newest(config, since, of_model, limit):
        try:
            one = replayed(record, names, post, sides_of, even_if_redacted=even_if_redacted)
        except ReplayError as error:
            if id:
                raise
            click.echo(f"omitted: {error}", err=True)
            continue
        done.append(one)
        if as_json:
            click.echo(msgspec.json.encode(one))
        elif id:
            _print(one)
    if not id and not as_json:
        _print_summaries(done)


def _url(config: Path) -> str:
    from headrace.gateway.settings.read import read_settings

    listen = read_settings(config).listen
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    return f"http://{host}:{listen.port}"


def _newest(config: Path, since: str | None, model: str | None, limit: int) -> Iterator[LogRecord]:
    from headrace.gateway.ledger.days import days_of
    from headrace.gateway.replaying.replay import SESSION
    from headrace.gateway.request_log.filters import RecordFilter

    since_ms = days_of(since, None).since_ms
    wanted = RecordFilter(
        model=model,
        since_s=None if since_ms is None else since_ms / 1000,
        limit=_PAGE,
        bodies=True,
    )
    reader = reader_at(config)
    unanswered = 0
    while limit > 0:
        page = reader.newest(wanted)
        for record in page.records:
            if record.session.startswith(SESSION):
                continue
            if record.outcome in _UNANSWERED:
                unanswered += 1
                continue
            yield record
            limit -= 1
            if limit == 0:
                break
        if page.next is None:
            break
        wanted = wanted._replace(after=page.next)
    if unanswered:
        click.echo(f"omitted: {unanswered} that were refused or failed", err=True)


def _print(one: ReplayResult) -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from headrace.gateway.replaying.answer import difference

    table = Table("model", "target", "status", "tokens", "cost in $", "ms", title=visible(one.id))
    for name, answer in (("then", one.then), *((now.model, now) for now in one.now)):
        tokens = (
            ""
            if answer.input_tokens is None
            else (f"{answer.input_tokens:,} + {answer.output_tokens or 0:,}")
        )
        label = f"then: {answer.model}" if name == "then" else name
        row = (
            label,
            answer.target,
            str(answer.status),
            tokens,
            _cost(answer),
            _ms(answer.total_ms),
        )
        table.add_row(*(Text(visible(part)) for part in row))
    console = Console(width=None if sys.stdout.isatty() else _WIDE_COLUMNS)
    console.print(table)
    answers = (one.then, *one.now)
    beside = Table(*(Column(Text(visible(at.model))) for at in answers))
    beside.add_row(*(Text(visible(at.text)) for at in answers))
    console.print(beside)
    for now in one.now:
        changed = difference(one.then, now)
        said = "\n".join(changed) if changed else f"{now.model} says the same, word for word"
        click.echo(visible(said))
    if one.redacted:
        click.echo(
            "the request sent now is the redacted one: values had been replaced when it was stored"
        )


def _print_summaries(done: list[ReplayResult]) -> None:
    from rich.console import Console
    from rich.table import Table

    from headrace.gateway.replaying.answer import summaries

    if not done:
        click.echo("no request was sent")
        return
    table = Table("model", "requests", "answered", "the same", "tokens", "cost in $",
                  "unknown cost", "mean ms")  # fmt: skip
    for summary in summaries(done):
        table.add_row(
            visible(summary.model), str(summary.requests), str(summary.answered), str(summary.same),
            f"{summary.input_tokens:,} + {summary.output_tokens:,}", dollars(summary.cost_nusd),
            str(summary.unknown_cost), _ms(summary.mean_ms),
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else _WIDE_COLUMNS).print(table)


def _cost(answer: Answer) -> str:
    return "unknown" if answer.cost_nusd is None else dollars(answer.cost_nusd)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
