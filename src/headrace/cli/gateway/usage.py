"""`headrace gateway usage`: what was used, by whom, and what it cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.gateway.keys.labels import key_labels, labelled
from headrace.cli.gateway.ledger import ledger_options, ledger_path
from headrace.cli.gateway.table import Column, cost_text, print_fitted
from headrace.cli.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.gateway.ledger.usage import Usage


@click.command()
@ledger_options
@click.option(
    "--by",
    default="",
    metavar="NAMES",
    help="What to group by, separated by commas: minute, hour, day, month, organisation, team, "
    "user, key, model, provider, target, dialect, operation, outcome, variant, prompt, "
    "purpose. [default: everything in one group]",
)
@click.option("--since", metavar="DAY", help="From this day on, as 2026-11-01, in UTC.")
@click.option("--until", metavar="DAY", help="Up to the end of this day.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with every column.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each group.")
def usage(
    config: Path,
    ledger: Path | None,
    by: str,
    since: str | None,
    until: str | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Add up what requests took: tokens, cost, times, failures.

    Keys are shown with their labels from access.store of the gateway's file. A cost covers only
    requests of known price; the number of others is shown beside it. The gateway may be running.

    \b
    headrace gateway usage --by day,key
    headrace gateway usage --by team,model --since 2026-11-01 --until 2026-11-30 --csv
    """
    from headrace.gateway.ledger.days import days_of
    from headrace.gateway.ledger.report import fields_of, write_csv
    from headrace.gateway.ledger.schema import reading
    from headrace.gateway.ledger.usage import groupings_of, usage_by

    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other; give one")
    names, days = groupings_of(by), days_of(since, until)
    with reading(ledger_path(config, ledger)) as connection:
        found = usage_by(connection, names, days)
    labels = key_labels(config) if "key" in names else {}
    if as_json:
        for one in found:
            click.echo(json.dumps(fields_of(one, labels)))
    elif as_csv:
        write_csv(sys.stdout, names, found, labels)
    else:
        _print(names, found, labels)


def _print(names: Sequence[str], found: Sequence[Usage], labels: dict[str, str]) -> None:
    columns = [
        *(Column(name, is_name=True) for name in names),
        Column("requests"), Column("failures"), Column("tokens in"), Column("cached", always=False),
        Column("tokens out"), Column("cost USD"), Column("unknown cost", always=False),
        Column("TTFT ms p50/p95", always=False), Column("total ms p50/p95", always=False),
        Column("overhead us p50/p99", always=False), Column("cache hits", always=False),
    ]  # fmt: skip
    rows = []
    for one in found:
        read = (
            one.input_tokens + one.cache_read_tokens + one.cache_write_tokens
            + one.cache_write_1h_tokens + one.input_audio_tokens
        )  # fmt: skip
        written = one.output_tokens + one.reasoning_tokens + one.output_audio_tokens
        rows.append([
            *(
                visible(labelled(one.by[name], labels) if name == "key" else one.by[name]) or "-"
                for name in names
            ),
            f"{one.requests:,}",
            f"{one.failures:,}",
            f"{read:,}",
            f"{one.cache_read_tokens:,}",
            f"{written:,}",
            cost_text(one.cost_nusd, one.unknown_cost),
            f"{one.unknown_cost:,}",
            _pair(one.first_token_ms_p50, one.first_token_ms_p95),
            _pair(one.total_ms_p50, one.total_ms_p95),
            _pair(one.overhead_us_p50, one.overhead_us_p99),
            f"{one.cache_hits:,}",
        ])  # fmt: skip
    print_fitted(columns, rows)
    unknown = sum(one.unknown_cost for one in found)
    if unknown:
        click.echo(
            f"the cost does not include requests of unknown price: {unknown:,} (give their "
            "targets a price)"
        )


def _pair(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:,.0f} / {high:,.0f}"
