"""`headrace gateway log`: the newest requests, each with what was tried for it."""

from __future__ import annotations

import datetime as dt
import typing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.gateway.keys.labels import key_labels, labelled
from headrace.cli.gateway.ledger import dollars, ledger_options, ledger_path
from headrace.cli.visible import visible

if TYPE_CHECKING:
    from headrace.gateway.serving.entry import Entry, Outcome

# As `Outcome`, whose module --help need not import; a test compares them.
OUTCOMES = ("answered", "cut", "client_gone", "failed", "refused")


@click.command(short_help="Show the newest requests and the targets tried.")
@ledger_options
@click.option("--model", help="Only this model, by the name clients use.")
@click.option("--key", help="Only the key with this id.")
@click.option("--outcome", type=click.Choice(OUTCOMES), help="Only this outcome.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True,
              help="How many at most.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each request.")
def log(
    config: Path,
    ledger: Path | None,
    model: str | None,
    key: str | None,
    outcome: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show the newest requests, with each target that was tried. The newest comes last.

    The ledger does not hold requests and answers: `headrace gateway requests` shows them if the
    file keeps a request log.

    \b
    headrace gateway log --outcome failed
    headrace gateway log --model chat --limit 100 --json
    """
    import msgspec

    from headrace.gateway.ledger.newest import EntryFilter, newest
    from headrace.gateway.ledger.schema import reading

    wanted = EntryFilter(model, key, typing.cast("Outcome | None", outcome), limit)
    with reading(ledger_path(config, ledger)) as connection:
        found = newest(connection, wanted)
    labels = {} if as_json else key_labels(config)
    for one in reversed(found):
        click.echo(msgspec.json.encode(one) if as_json else visible(_lines(one, labels)))


def _lines(one: Entry, labels: dict[str, str]) -> str:
    at = dt.datetime.fromtimestamp(one.at_s, dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    said = [at, one.id, one.outcome, str(one.status), f"{one.model} -> {one.target or 'nobody'}"]
    if one.operation != "chat":
        said.append(one.operation)
    if one.key:
        said.append(f"key {labelled(one.key, labels)}")
    if one.cache:
        said.append(f"cache {one.cache}")
    if one.usage is not None:
        about = "about " if one.usage_from == "estimated" else ""
        read, written = one.usage.prompt_tokens, one.usage.completion_tokens
        said.append(f"{about}{read:,} + {written:,} tokens")
        cost = "cost unknown" if one.cost_nusd is None else f"${dollars(one.cost_nusd)}"
        said.append(cost)
    if one.stream and one.first_token_ms is not None:
        said.append(f"first token {one.first_token_ms:,.0f} ms")
    said.append(f"total {one.total_ms:,.0f} ms")
    lines = ["  ".join(_flat(part) for part in said)]
    for attempt in one.attempts:
        became = "answered" if attempt.failure is None else attempt.failure
        status = f" {attempt.status}" if attempt.status is not None else ""
        why = f": {attempt.message}" if attempt.message else ""
        tried = f"{attempt.target}: {became}{status}, {attempt.lasted_ms:,.0f} ms{why}"
        lines.append("    " + _flat(tried))
    lines += ["    " + _flat(f"{target} (skipped)") for target in one.skipped]
    if one.ignored:
        lines.append("    " + _flat(f"ignored: {', '.join(one.ignored)}"))
    if one.dropped:
        lines.append("    " + _flat(f"dropped from the answer: {', '.join(one.dropped)}"))
    if one.error and not any(one.error.startswith(tried.message) for tried in one.attempts
                             if tried.message):  # fmt: skip
        lines.append("    " + _flat(one.error))
    return "\n".join(lines)


def _flat(text: str) -> str:
    """The text on one line, so that no text of a client looks like a line of the log."""
    return " ".join(text.split())
