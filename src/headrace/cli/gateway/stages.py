"""`headrace gateway stages`: how a cascade, a pipeline or a choice of models did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.gateway.ledger import dollars, ledger_options, ledger_path
from headrace.cli.visible import visible
from headrace.errors import ConfigError, shown
from headrace.protocol.neutral.dollars import NUSD_PER_USD

if TYPE_CHECKING:
    from headrace.gateway.ledger.stages import Stages


@click.command(short_help="Show how a model made of other models did.")
@click.argument("model")
@ledger_options
@click.option("--since", metavar="DAY", help="From this day on, as 2026-11-01, in UTC.")
@click.option("--until", metavar="DAY", help="Up to the end of this day.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def stages(
    model: str,
    config: Path,
    ledger: Path | None,
    since: str | None,
    until: str | None,
    as_json: bool,
) -> None:
    """Show how MODEL, made of other models, did according to the ledger. Sends nothing.

    Which stage answered how often, what its answers cost and how long one took, what judges and
    routers cost in addition, and what everything would have cost if the last model alone had
    answered with as many tokens: an estimate, since its answers would have been different. The
    gateway may be running.

    \b
    headrace gateway stages auto
    headrace gateway stages auto --since 2026-11-01 --json
    """
    from headrace.gateway.assemble import made
    from headrace.gateway.ledger.days import days_of
    from headrace.gateway.ledger.schema import reading
    from headrace.gateway.ledger.stages import stages_of
    from headrace.gateway.serving.bill import cost_nusd
    from headrace.gateway.settings.composed import made_of
    from headrace.gateway.settings.read import read_settings

    settings = read_settings(config)
    name = settings.aliases.get(model, model)
    found = settings.models.get(name)
    names = () if found is None else made_of(found)
    if not names:
        raise ConfigError(
            f"{shown(model)} is not made of other models in {config}; name one that has "
            "`choose`, `cascade` or `pipeline`"
        )
    built = made(config, settings, None)
    is_choice = found is not None and found.choose is not None
    baseline = names[-1] if is_choice else names[0]
    route = built.router.route(baseline)
    price = None if route is None else route.targets[0].price
    order = names if is_choice else tuple(reversed(names))
    days = days_of(since, until)
    with reading(ledger_path(config, ledger)) as connection:
        told = stages_of(
            connection, name, order, baseline, lambda usage: cost_nusd(usage, price), days
        )
    if as_json:
        click.echo(json.dumps(_as_dict(told)))
    else:
        _print(told)


def _as_dict(told: Stages) -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(told)
    for one, counted in zip(fields["stages"], told.stages, strict=True):
        one["share"] = counted.share
    return {
        **fields,
        "cost_usd": dollars(told.cost_nusd),
        "cost_per_request_nusd": told.cost_per_request_nusd,
    }


def _print(told: Stages) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for title in ("stage", "answers", "told", "share", "cost USD", "median s"):
        table.add_column(title, justify="left" if title == "stage" else "right")
    for stage in told.stages:
        share = "-" if stage.share is None else f"{stage.share:.1%}"
        row = (f"{stage.told:,}", share, dollars(stage.cost_nusd), _seconds(stage.lasted_ms_p50))
        table.add_row(visible(stage.model) or "-", f"{stage.asked:,}", *row)
    for besides in told.besides:
        row = ("", "", dollars(besides.cost_nusd), _seconds(besides.lasted_ms_p50))
        table.add_row(f"({besides.purpose})", f"{besides.answers:,}", *row)
    Console(markup=False, highlight=False).print(table)
    each = told.cost_per_request_nusd
    per = "" if each is None else f", {each / NUSD_PER_USD:.6f} USD each"
    click.echo(
        f"{told.requests:,} requests, {told.answered:,} answered for {dollars(told.cost_nusd)} "
        f"USD{per}; {_seconds(told.total_ms_p50)} s median, {_seconds(told.total_ms_p95)} s p95"
    )
    if told.unknown_cost:
        click.echo(f"without {told.unknown_cost:,} answers of unknown price")
    if told.baseline_nusd is not None:
        share = f" ({told.cost_nusd / told.baseline_nusd:.0%} of it)" if told.baseline_nusd else ""
        click.echo(
            f"always {visible(told.baseline)}: about {dollars(told.baseline_nusd)} USD{share}"
        )


def _seconds(ms: float | None) -> str:
    return "-" if ms is None else f"{ms / 1000:.2f}"
