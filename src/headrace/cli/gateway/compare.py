"""`headrace gateway compare`: the sides of an A/B test beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.gateway.ledger import dollars, ledger_options, ledger_path
from headrace.cli.gateway.table import Column, cost_text, print_fitted
from headrace.cli.visible import visible
from headrace.protocol.neutral.dollars import NUSD_PER_USD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.gateway.feedback.report import Scores
    from headrace.gateway.ledger.compare import SideFigures


@click.command(short_help="Compare a model's variants: failures, times, cost, scores.")
@click.argument("model")
@ledger_options
@click.option(
    "--control",
    help="The variant that the others are compared with. [default: the first variant of the file, "
    "else the one with the most requests]",
)
@click.option("--since", metavar="DAY", help="From this day on, as 2026-11-01, in UTC.")
@click.option("--until", metavar="DAY", help="Up to the end of this day.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each variant.")
def compare(
    model: str,
    config: Path,
    ledger: Path | None,
    control: str | None,
    since: str | None,
    until: str | None,
    as_json: bool,
) -> None:
    """Compare the variants of MODEL: failures, times, tokens, cost, scores.

    A request counts for the variant it was assigned to: if another variant answered it instead,
    that is a failure. Shares of failures have an interval of 95 % (Wilson's), and p is the
    probability that so large a difference from the control arises by chance (z-test of two
    proportions): below 0.05 it is usually called a difference. Look once, at the end of a test:
    repeated looks will find one sooner or later.

    \b
    headrace gateway compare chat
    headrace gateway compare chat --since 2026-11-01 --control control --json
    """
    from headrace.gateway.feedback.report import scores_by
    from headrace.gateway.ledger.compare import compare_sides
    from headrace.gateway.ledger.days import days_of
    from headrace.gateway.ledger.schema import reading

    days = days_of(since, until)
    path = ledger_path(config, ledger)
    names, first = _of_the_file(config, model)
    with reading(path) as connection:
        found = compare_sides(connection, names, days, control=control)
        if control is None and first in [one.variant for one in found]:
            found = compare_sides(connection, names, days, control=first)
        scores = _scores(scores_by(connection, ("model", "variant", "name"), None, days), names)
    if as_json:
        for one in found:
            click.echo(json.dumps({**_fields(one), "scores": scores.get(one.variant, {})}))
        return
    if not found:
        click.echo(f"no request of {model} was assigned to a variant; `models.{model}.variants` "
            "defines them")  # fmt: skip
        return
    _print(found, scores)


def _scores(
    found: Sequence[Scores], models: Sequence[str]
) -> dict[str, dict[str, dict[str, float | None]]]:
    """Scores by variant and name. There is no interval where a model was requested by several
    names."""
    told: dict[str, dict[str, dict[str, float | None]]] = {}
    for one in found:
        if one.by["model"].partition(":")[0] not in models or not one.by["variant"]:
            continue
        of = told.setdefault(one.by["variant"], {})
        before = of.get(one.by["name"])
        if before is None:
            of[one.by["name"]] = {
                "count": one.count, "mean": one.mean, "low": one.low, "high": one.high,
            }  # fmt: skip
            continue
        count, mean = before["count"] or 0, before["mean"] or 0.0
        both = count + one.count
        mean = (count * mean + one.count * one.mean) / both
        of[one.by["name"]] = {"count": both, "mean": mean, "low": None, "high": None}
    return told


def _of_the_file(config: Path, model: str) -> tuple[list[str], str | None]:
    """The model's names, and its first variant; only the given name if there is no such file."""
    from headrace.errors import ConfigError
    from headrace.gateway.settings.read import read_settings

    try:
        settings = read_settings(config)
    except ConfigError:
        return [model], None
    model = settings.aliases.get(model, model)
    own = settings.models.get(model)
    aliases = [alias for alias, meant in settings.aliases.items() if meant == model]
    return [model, *aliases], None if own is None else next(iter(own.variants), None)


def _fields(one: SideFigures) -> dict[str, Any]:
    import msgspec

    told: dict[str, Any] = msgspec.structs.asdict(one)
    if not one.requests or (one.unknown_cost and not one.cost_nusd):
        return {**told, "cost_usd": None, "cost_usd_per_request": None}
    each = one.cost_nusd / one.requests / NUSD_PER_USD
    return {**told, "cost_usd": dollars(one.cost_nusd), "cost_usd_per_request": each}


def _print(
    found: Sequence[SideFigures], scores: dict[str, dict[str, dict[str, float | None]]]
) -> None:
    columns = [
        Column("variant", is_name=True), Column("requests"), Column("failures"),
        Column("of them answered by another", always=False), Column("share (95 %)"), Column("p"),
        Column("TTFT ms p50/p95", always=False), Column("total ms p50/p95", always=False),
        Column("tokens in/request", always=False), Column("out/request", always=False),
        Column("cost USD", always=False), Column("USD/request"),
        Column("unknown cost", always=False),
    ]  # fmt: skip
    rows = [
        [
            visible(one.variant),
            f"{one.requests:,}",
            f"{one.failures:,}",
            f"{one.stood_in:,}",
            _share(one),
            "-" if one.p_value is None else f"{one.p_value:.3g}",
            _pair(one.first_token_ms_p50, one.first_token_ms_p95),
            _pair(one.total_ms_p50, one.total_ms_p95),
            f"{one.input_tokens / max(1, one.requests):,.0f}",
            f"{one.output_tokens / max(1, one.requests):,.0f}",
            cost_text(one.cost_nusd, one.unknown_cost),
            cost_text(one.cost_nusd, one.unknown_cost, of=one.requests),
            f"{one.unknown_cost:,}",
        ]
        for one in found
    ]
    print_fitted(columns, rows)
    for one in found:
        if one.p_value is not None:
            click.echo(_said(one, found[0]))
    for one in found:
        for name, score in scores.get(one.variant, {}).items():
            within = ""
            if score["low"] is not None and score["high"] is not None:
                within = f", 95 %: {score['low']:.3g} to {score['high']:.3g}"
            click.echo(
                visible(f"{one.variant}: {name} {score['mean']:.3g} of {score['count']}{within}")
            )


def _said(one: SideFigures, control: SideFigures) -> str:
    assert one.p_value is not None and one.failure_share is not None
    assert control.failure_share is not None
    if one.p_value >= 0.05:
        return visible(
            f"{one.variant}: no difference in failures beyond chance (p = {one.p_value:.3g})"
        )
    more = "more" if one.failure_share > control.failure_share else "fewer"
    return visible(f"{one.variant}: {more} failures than {control.variant} (p = {one.p_value:.3g})")


def _share(one: SideFigures) -> str:
    if one.failure_share is None or one.failure_share_low is None:
        return "-"
    assert one.failure_share_high is not None
    low, high = one.failure_share_low * 100, one.failure_share_high * 100
    return f"{one.failure_share * 100:.2f} % ({low:.2f}-{high:.2f})"


def _pair(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:,.0f} / {high:,.0f}"
