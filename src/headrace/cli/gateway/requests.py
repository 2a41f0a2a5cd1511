"""`headrace gateway requests`: what the request log keeps, searched."""

from __future__ import annotations

import datetime as dt
import os
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.gateway.ledger import dollars
from headrace.cli.gateway.log import OUTCOMES
from headrace.cli.numbers import NumberRange
from headrace.cli.visible import visible
from headrace.protocol.neutral.dollars import NUSD_PER_USD

if TYPE_CHECKING:
    from headrace.gateway.feedback.score import Score
    from headrace.gateway.request_log.record import LoggedBody, LogRecord
    from headrace.gateway.request_log.written_log import Reader
    from headrace.gateway.serving.entry import Outcome
    from headrace.gateway.settings.request_log import RequestLogSettings

CONFIG = click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    default=Path("gateway.yaml"),
    help="The gateway's file, which says where the log is. [default: gateway.yaml]",
)


@click.command(short_help="Search the request log.")
@CONFIG
@click.option("--text", help="Only with this text in the request or the answer; case is ignored.")
@click.option("--model", help="Only this model, by the name clients use.")
@click.option("--key", help="Only the key with this id.")
@click.option("--team", help="Only this team.")
@click.option("--session", help="Only this session.")
@click.option("--variant", help="Only this variant of an A/B test.")
@click.option("--outcome", type=click.Choice(OUTCOMES), help="Only this outcome.")
@click.option("--since", metavar="DAY", help="From this day on, as 2026-11-01, in UTC.")
@click.option("--until", metavar="DAY", help="Up to the end of this day.")
@click.option(
    "--min-usd", type=NumberRange(min=0), help="Only requests that cost this much or more."
)
@click.option(
    "--min-ms", type=NumberRange(min=0), help="Only requests that took this long or longer."
)
@click.option("--after", help="Continue after a page: the value that page named at its end.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True,
              help="How many at most.")  # fmt: skip
@click.option("--bodies", is_flag=True, help="Show the request's and the answer's text.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each request.")
def requests(
    config: Path,
    text: str | None,
    model: str | None,
    key: str | None,
    team: str | None,
    session: str | None,
    variant: str | None,
    outcome: str | None,
    since: str | None,
    until: str | None,
    min_usd: float | None,
    min_ms: float | None,
    after: str | None,
    limit: int,
    bodies: bool,
    as_json: bool,
) -> None:
    """Search the request log, which keeps requests and answers if the gateway's file enables it
    (`request_log: {enabled: true}`). The newest comes first.

    \b
    headrace gateway requests --text 'refund' --since 2026-11-01
    headrace gateway requests --outcome failed --bodies --limit 5
    headrace gateway requests --min-ms 5000 --json
    """
    import msgspec

    from headrace.gateway.ledger.days import days_of
    from headrace.gateway.request_log.filters import RecordFilter

    days = days_of(since, until)
    wanted = RecordFilter(
        model=model,
        key=key,
        team=team,
        outcome=typing.cast("Outcome | None", outcome),
        since_s=None if days.since_ms is None else days.since_ms / 1000,
        until_s=None if days.before_ms is None else days.before_ms / 1000,
        text=text,
        least_cost_nusd=None if min_usd is None else round(min_usd * NUSD_PER_USD),
        least_ms=min_ms,
        session=session,
        variant=variant,
        after=after,
        limit=limit,
        bodies=bodies,
    )
    page = reader_at(config).newest(wanted)
    for record in page.records:
        click.echo(
            msgspec.json.encode(record) if as_json else visible("\n".join(_lines(record, bodies)))
        )
    if page.next is not None and not as_json:
        click.echo(f"there are more: --after {page.next}")


@click.command(short_help="Show one request of the request log in full.")
@click.argument("id")
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def show(id: str, config: Path, as_json: bool) -> None:
    """Show one request of the request log in full: the request, the answer, what it took, and the
    feedback on its answer.

    ID is the `x-request-id` of its answer, or the `line` of a record. If clients gave several
    requests one id, the newest is shown.

    \b
    headrace gateway show 5f0c1a9e2b7d4c38
    headrace gateway show 5f0c1a9e2b7d4c38 --json | jq -r .request.text | jq .
    """
    import msgspec

    one = record_at(config, id)
    feedback = _feedback(config, one.id)
    if as_json:
        click.echo(msgspec.json.encode({**msgspec.structs.asdict(one), "feedback": feedback}))
        return
    said = [f"    {_scored(score)}" for score in feedback]
    click.echo(visible("\n".join([*_lines(one, bodies=True), *said])))


def _feedback(config: Path, id: str) -> tuple[Score, ...]:
    """Scores from the ledger that the file names, if there is one."""
    from headrace.gateway.feedback.report import scores_of
    from headrace.gateway.ledger.schema import reading
    from headrace.gateway.settings.read import read_settings

    named = read_settings(config).ledger.path
    if named is None or not (config.parent / named).exists():
        return ()
    with reading(config.parent / named) as connection:
        return scores_of(connection, id)


def _scored(one: Score) -> str:
    by = f" by {one.key}" if one.key else ""
    comment = f": {' '.join(one.comment.split())}" if one.comment else ""
    return f"feedback: {one.name} {one.score:g}{by}{comment}"


def record_at(config: Path, id: str) -> LogRecord:
    """The record with this id. Raises ConfigError if there is none, and RequestLogError."""
    from headrace.errors import ConfigError, shown
    from headrace.gateway.settings.read import read_settings

    found = reader_at(config).find(id)
    if found is None:
        raise ConfigError(
            f"{shown(id)}: the request log has no such request; `headrace gateway requests` "
            f"lists those it has{_kept_alone(read_settings(config).request_log)}"
        )
    return found


def _kept_alone(settings: RequestLogSettings) -> str:
    """A hint at the settings that restrict what is logged, for a request that is missing; "" if
    none do."""
    said = []
    if settings.sample < 1:
        said.append(f"{settings.sample:g} of all requests (sample)")
    if settings.models != ("*",):
        said.append(f"models {', '.join(settings.models)}")
    for name in ("keys", "teams"):
        if (globs := getattr(settings, name)) is not None:
            said.append(f"{name} {', '.join(globs) or 'none'}")
    return f". By its settings the log keeps only: {'; '.join(said)}" if said else ""


def reader_at(config: Path) -> Reader:
    """A reader of the log that a gateway's file names. Raises ConfigError."""
    from headrace.gateway.building.request_log import reader_of
    from headrace.gateway.settings.read import read_settings
    from headrace.gateway.settings.secret import Sources

    return reader_of(read_settings(config).request_log, Sources(os.environ, config.parent))


def _lines(one: LogRecord, bodies: bool) -> list[str]:
    at = dt.datetime.fromtimestamp(one.at_s, dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    said = [at, one.id, one.outcome, str(one.status), f"{one.model} -> {one.target or 'nobody'}"]
    for name in ("team", "user", "key", "session", "variant", "cache"):
        if value := getattr(one, name):
            said.append(f"{name} {value}")
    if one.input_tokens is not None:
        said.append(f"{one.input_tokens:,} + {one.output_tokens or 0:,} tokens")
        said.append("cost unknown" if one.cost_nusd is None else f"${dollars(one.cost_nusd)}")
    said.append(f"{one.total_ms:,.0f} ms")
    lines = ["  ".join(" ".join(part.split()) for part in said)]
    if one.error:
        lines.append("    " + " ".join(one.error.split()))
    if bodies:
        if one.without_bodies:
            lines.append(f"    bodies are not kept: {one.without_bodies}")
        for name, body in (("request", one.request), ("reply", one.reply)):
            if body is not None:
                lines += [f"  {name}{_about(body)}:", *_indented(body.text)]
    return lines


def _about(body: LoggedBody) -> str:
    said = [f"{body.bytes:,} bytes"]
    if body.assembled:
        said.append("was streamed")
    if body.redacted:
        said.append(f"{body.redacted} values replaced")
    if body.cut:
        said.append("cut")
    return f" ({', '.join(said)})"


def _indented(text: str) -> list[str]:
    """JSON text indented; any other text unchanged."""
    import msgspec

    try:
        told: Any = msgspec.json.format(text.encode(), indent=2).decode()
    except (msgspec.MsgspecError, UnicodeError):
        told = text
    return ["    " + line for line in told.splitlines()]
