"""`headrace gateway keys edit`: another label or end, or other terms, for a key there is."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.gateway.keys.list import keys_as_dicts, terms_lines
from headrace.cli.gateway.keys.options import (
    COUNT,
    DAYS,
    DEFAULT_WINDOW,
    MS_PER_DAY,
    TAKEN_AWAY,
    Dollars,
    OrNone,
    Until,
    calendar_option,
    model_warnings,
    per_option,
)
from headrace.cli.gateway.keys.store import config_option, json_option, with_store
from headrace.cli.gateway.keys.traits import check_traits, trait_options, traits_given
from headrace.protocol.neutral.dollars import NUSD_PER_USD

if TYPE_CHECKING:
    from headrace.gateway.accounts.records import KeyRecord
    from headrace.gateway.accounts.sqlite_store import SqliteStore
    from headrace.gateway.accounts.terms import Terms
    from headrace.gateway.accounts.window import WindowName

_LIMITS = ("rpm", "tpm", "concurrency")


@click.command(short_help="Change what a key may do.")
@click.argument("id")
@config_option
@click.option("--label", help="A name for people.")
@click.option(
    "--model",
    "models",
    multiple=True,
    help="A model or glob it may use, instead of all the previous ones; none: every model. [may be "
    "repeated]",
)
@click.option("--usd", type=OrNone(Dollars()), help="The budget in US dollars; none: no budget.")
@per_option
@calendar_option
@click.option(
    "--raise-budget-to",
    "raised_to",
    type=OrNone(Dollars()),
    help="A higher budget in US dollars for a while, with --until; none: end the raise.",
)
@click.option(
    "--until", type=Until(), help="When the raise ends: a day, with its end, or a time, in UTC."
)
@click.option("--rpm", type=OrNone(COUNT), help="Requests in any minute; none: no limit.")
@click.option("--tpm", type=OrNone(COUNT), help="Tokens in any minute; none: no limit.")
@click.option(
    "--concurrency", type=OrNone(COUNT), help="Requests at the same time; none: no limit."
)
@click.option(
    "--expires-days", type=OrNone(DAYS), help="Days from now until it expires; none: never."
)
@trait_options(edits=True)
@json_option
def edit(id: str, config: Path, as_json: bool, **options: Any) -> None:
    """Change what the key ID may do; its secret, and what is not given, stay as they are.

    `none` removes a limit, the budget, the list of models or the expiry. What was spent still
    counts in a budget that is raised or lowered; a budget with another window starts at zero. If a
    key has several budgets, --per chooses the one that --usd or --raise-budget-to changes. A raise
    ends by itself; another --usd or --per ends it too.

    \b
    headrace gateway keys edit key_3f9c2a71d05b --usd 100
    headrace gateway keys edit key_3f9c2a71d05b --raise-budget-to 250 --until 2026-12-31
    headrace gateway keys edit key_3f9c2a71d05b --rpm none --model 'gpt-*' --model claude
    headrace gateway keys edit key_3f9c2a71d05b --expires-days 30 --label search
    """
    from headrace.gateway.settings.read import read_settings

    if all(value is None or value == () for value in options.values()):
        raise click.UsageError("nothing to change was given; see --help")
    models = options["models"]
    if TAKEN_AWAY in models and len(models) > 1:
        raise click.UsageError(
            "--model none means every model, so it cannot be combined with another --model"
        )
    now_ms = time.time_ns() // 1_000_000
    _check_raise(options["raised_to"], options["until"], now_ms)
    settings, traits = read_settings(config), traits_given(options)
    check_traits(traits, settings, config)

    async def change(store: SqliteStore) -> dict[str, Any]:
        await store.edit_key(id, lambda record: _edited(record, options, traits, now_ms))
        return next(one for one in await keys_as_dicts(store, now_ms) if one["id"] == id)

    now = with_store(config, change, id=id)
    if models and TAKEN_AWAY not in models:
        model_warnings(models, settings, config)
    said = json.dumps(now) if as_json else f"{id} is changed: {'; '.join(terms_lines(now))}"
    click.echo(said)


def _edited(
    record: KeyRecord, options: dict[str, Any], traits: dict[str, Any], now_ms: int
) -> KeyRecord:
    import msgspec

    from headrace.gateway.accounts.edit import with_limits, with_traits

    terms = with_traits(record.terms, traits)
    if models := options["models"]:
        models = () if TAKEN_AWAY in models else tuple(models)
        terms = msgspec.structs.replace(terms, models=models)
    limits = {
        name: None if options[name] == TAKEN_AWAY else options[name]
        for name in _LIMITS
        if options[name] is not None
    }
    if limits:
        terms = with_limits(terms, limits)
    if any(options[name] is not None for name in ("usd", "per", "calendar", "raised_to")):
        terms = _with_budget(terms, options)
    expires_ms, days = record.expires_ms, options["expires_days"]
    if days is not None:
        expires_ms = None if days == TAKEN_AWAY else int(now_ms + days * MS_PER_DAY)
    label = record.label if options["label"] is None else options["label"]
    return msgspec.structs.replace(record, terms=terms, label=label, expires_ms=expires_ms)


def _check_raise(raised_to: float | str | None, until_ms: int | None, now_ms: int) -> None:
    if raised_to == TAKEN_AWAY:
        if until_ms is not None:
            raise click.UsageError("--raise-budget-to none takes no --until")
    elif (raised_to is None) != (until_ms is None):
        raise click.UsageError("--raise-budget-to and --until belong together; give both")
    elif until_ms is not None and until_ms <= now_ms:
        raise click.UsageError("--until is past; give a day or time in the future")


def _with_budget(terms: Terms, options: dict[str, Any]) -> Terms:
    import msgspec

    from headrace.gateway.accounts.edit import dollar_budgets, with_dollar_budgets
    from headrace.gateway.accounts.terms import Budget

    usd: float | str | None = options["usd"]
    per: WindowName | None = options["per"]
    raised_to: float | str | None = options["raised_to"]
    budgets = dollar_budgets(terms)
    several = len(budgets) > 1
    if several and per is None:
        windows = ", ".join(one.window for one in budgets)
        raise click.UsageError(f"the key has budgets per {windows}: choose one with --per")
    meant = next((one for one in budgets if not several or one.window == per), None)
    others = tuple(one for one in budgets if one is not meant)
    if meant is None and (usd is None or usd == TAKEN_AWAY):
        raise click.UsageError("the key has no such budget; --usd AMOUNT gives it one")
    if usd == TAKEN_AWAY:
        if raised_to is not None:
            raise click.UsageError("--usd none removes the budget, so there is nothing to raise")
        return with_dollar_budgets(terms, others)
    amount = None if usd is None else round(float(usd) * NUSD_PER_USD)
    raised = None
    if raised_to is not None and raised_to != TAKEN_AWAY:
        raised = round(float(raised_to) * NUSD_PER_USD)
    budget = meant or Budget(amount=0, window=DEFAULT_WINDOW)
    amount = budget.amount if amount is None else amount
    if raised is not None and raised < amount:
        raise click.UsageError("--raise-budget-to is below the budget; lower the budget with --usd")
    window = per or budget.window
    calendar = budget.calendar if options["calendar"] is None else options["calendar"]
    changed = msgspec.structs.replace(
        budget,
        amount=amount,
        window=window,
        calendar=calendar and window != "total",
        raised_to=raised,
        raised_until_ms=options["until"],
    )
    return with_dollar_budgets(terms, (*others, changed))
