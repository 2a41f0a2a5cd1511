"""`headrace gateway keys create`: a new key, shown once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.gateway.keys.options import (
    COUNT,
    DAYS,
    DEFAULT_WINDOW,
    MS_PER_DAY,
    Dollars,
    calendar_option,
    model_warnings,
    per_option,
)
from headrace.cli.gateway.keys.store import config_option, json_option, show_new, with_store
from headrace.cli.gateway.keys.traits import check_traits, trait_options, traits_given
from headrace.errors import ConfigError
from headrace.protocol.neutral.dollars import NUSD_PER_USD

if TYPE_CHECKING:
    from headrace.gateway.accounts.records import Parent
    from headrace.gateway.accounts.sqlite_store import SqliteStore


@click.command(short_help="Make a key and show it, only this once.")
@config_option
@click.option("--organisation", help="The organisation that the key belongs to.")
@click.option("--team", help="The team that the key belongs to, instead of an organisation.")
@click.option("--user", help="The user that the key belongs to, instead of a team.")
@click.option("--label", default="", help="A name for people.")
@click.option("--model", "models", multiple=True, help="A model or glob it may use. "
              "[may be repeated; default: all]")  # fmt: skip
@click.option("--usd", type=Dollars(), help="A budget in US dollars.")
@per_option
@calendar_option
@click.option("--rpm", type=COUNT, help="Requests in any minute.")
@click.option("--tpm", type=COUNT, help="Tokens in any minute.")
@click.option("--concurrency", type=COUNT, help="Requests at the same time.")
@click.option("--expires-days", type=DAYS, help="Days until it expires. [default: never]")
@trait_options(edits=False)
@json_option
def create(config: Path, as_json: bool, **options: Any) -> None:
    """Make a key and show it, only this once: what is kept is a digest of it.

    The organisations, teams and users that it may belong to are defined in the gateway's file:
    access.organisations, access.teams and access.users. Everything else can be changed later with
    `headrace gateway keys edit`.

    \b
    headrace gateway keys create --team search --label bot --usd 50 --per 1M
    headrace gateway keys create --model 'gpt-*' --rpm 60 --expires-days 30
    headrace gateway keys create --team search --priority low --data-collection deny --region eu
    """
    from headrace.gateway.accounts.edit import with_limits, with_traits
    from headrace.gateway.accounts.terms import Budget, Terms
    from headrace.gateway.settings.read import read_settings

    for name in ("per", "calendar"):
        if options[name] is not None and options["usd"] is None:
            raise click.UsageError(f"--{name} belongs to a budget: give --usd too")
    parent = _parent(options)
    budgets: tuple[Budget, ...] = ()
    if options["usd"] is not None:
        window = options["per"] or DEFAULT_WINDOW
        amount = round(options["usd"] * NUSD_PER_USD)
        calendar = bool(options["calendar"]) and window != "total"
        budgets = (Budget(amount=amount, window=window, calendar=calendar),)
    terms = Terms(models=tuple(options["models"]), budgets=budgets)
    terms = with_limits(terms, {name: options[name] for name in ("rpm", "tpm", "concurrency")})
    settings, traits = read_settings(config), traits_given(options)
    check_traits(traits, settings, config)
    terms = with_traits(terms, traits)
    days = options["expires_days"]
    expires_ms = None if days is None else int(time.time() * 1000 + days * MS_PER_DAY)

    async def make(store: SqliteStore) -> tuple[str, str]:
        made = await store.create_key(
            parent=parent, terms=terms, label=options["label"], expires_ms=expires_ms
        )
        return made.key_id, made.reveal()

    made = with_store(config, make)
    model_warnings(terms.models, settings, config)
    show_new(*made, as_json)


def _parent(options: dict[str, Any]) -> Parent | None:
    from headrace.gateway.accounts.records import Parent

    named = [
        Parent(level, options[level])
        for level in ("organisation", "team", "user")
        if options[level] is not None
    ]
    if len(named) > 1:
        raise ConfigError("--organisation, --team and --user: a key belongs to only one; give one")
    return named[0] if named else None
