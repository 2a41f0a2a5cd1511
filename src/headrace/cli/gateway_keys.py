"""`headrace gateway keys`: keys of the gateway, kept in the file that access.store names."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.gateway.accounts.records import KeyRecord, Parent
    from headrace.gateway.accounts.sqlite_store import SqliteStore

T = TypeVar("T")
_MS_PER_DAY = 86_400_000

_CONFIG = click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    default=Path("gateway.yaml"),
    help="The gateway's file. [default: gateway.yaml]",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def keys() -> None:
    """Make keys of the gateway, and take them back.

    A gateway that runs takes a change within a second. Keys that stand in the file itself are
    changed there.

    \b
    headrace gateway keys create --team search --usd 50 --per 1M
    headrace gateway keys list
    headrace gateway keys rotate 3f9c2a --overlap-days 7
    headrace gateway keys block 3f9c2a
    headrace gateway keys unblock 3f9c2a
    """


@keys.command()
@_CONFIG
@click.option("--organisation", help="What the key belongs to.")
@click.option("--team", help="What the key belongs to, in place of an organisation.")
@click.option("--user", help="What the key belongs to, in place of a team.")
@click.option("--label", default="", help="What people call it.")
@click.option("--model", "models", multiple=True, help="A model or glob it may use. "
              "[may be repeated; default: all]")  # fmt: skip
@click.option("--usd", type=float, help="A budget in US dollars.")
@click.option("--per", type=click.Choice(["1m", "5m", "1h", "1d", "1w", "1M", "1Y", "total"]),
              default="1M", help="Window of the budget. [default: 1M]")  # fmt: skip
@click.option("--rpm", type=int, help="Requests in any minute.")
@click.option("--tpm", type=int, help="Tokens in any minute.")
@click.option("--concurrency", type=int, help="Requests at once.")
@click.option("--expires-days", type=float, help="Days until it ends. [default: never]")
@_JSON
def create(config: Path, as_json: bool, **options: Any) -> None:
    """Make a key and show it, this once: what is kept is a digest of it."""
    from headrace.gateway.accounts.terms import Budget, Limits, Terms

    parent = _parent(options)
    budgets: tuple[Budget, ...] = ()
    if options["usd"] is not None:
        budgets = (Budget(amount=round(options["usd"] * 1e9), window=options["per"]),)
    limits: tuple[Limits, ...] = ()
    if any(options[name] is not None for name in ("rpm", "tpm", "concurrency")):
        limits = (
            Limits(rpm=options["rpm"], tpm=options["tpm"], concurrency=options["concurrency"]),
        )
    terms = Terms(models=tuple(options["models"]), limits=limits, budgets=budgets)
    days = options["expires_days"]
    expires_ms = None if days is None else int(time.time() * 1000 + days * _MS_PER_DAY)

    async def make(store: SqliteStore) -> tuple[str, str]:
        made = await store.create_key(
            parent=parent, terms=terms, label=options["label"], expires_ms=expires_ms
        )
        return made.key_id, made.reveal()

    _show_new(*_with_store(config, make), as_json)


@keys.command()
@click.argument("id")
@_CONFIG
@click.option("--overlap-days", type=float, default=0.0, help="How long the old one opens it too. "
              "[default: 0]")  # fmt: skip
@_JSON
def rotate(id: str, config: Path, overlap_days: float, as_json: bool) -> None:
    """Make another key for ID and show it; what was spent stays with it."""

    async def make(store: SqliteStore) -> tuple[str, str]:
        made = await store.rotate_key(id, overlap_ms=int(overlap_days * _MS_PER_DAY))
        return made.key_id, made.reveal()

    _show_new(*_with_store(config, make), as_json)


@keys.command("list")
@_CONFIG
@_JSON
def list_keys(config: Path, as_json: bool) -> None:
    """List the keys that were made, without what is secret of them.

    \b
    headrace gateway keys list
    headrace gateway keys list --json
    """

    async def read(store: SqliteStore) -> tuple[KeyRecord, ...]:
        return (await store.read()).keys

    found = [_as_dict(one) for one in _with_store(config, read)]
    if as_json:
        click.echo(json.dumps(found))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "label", "ends in", "belongs to", "models", "blocked")
    for one in found:
        table.add_row(
            one["id"], one["label"], ", ".join(one["ends"]), one["parent"] or "",
            ", ".join(one["models"]) or "all", "yes" if one["blocked"] else "",
        )  # fmt: skip
    Console().print(table)


@keys.command()
@click.argument("id")
@_CONFIG
@click.option("--off", is_flag=True, help="Unblock it, as `unblock` does.")
@_JSON
def block(id: str, config: Path, off: bool, as_json: bool) -> None:
    """Refuse every request with the key ID, until it is unblocked.

    \b
    headrace gateway keys block 3f9c2a
    headrace gateway keys block 3f9c2a --off
    """

    _block(id, config, as_json, blocked=not off)


@keys.command()
@click.argument("id")
@_CONFIG
@_JSON
def unblock(id: str, config: Path, as_json: bool) -> None:
    """Serve requests with the key ID again; the same as `block ID --off`.

    \b
    headrace gateway keys unblock 3f9c2a
    """
    _block(id, config, as_json, blocked=False)


@keys.command()
@click.argument("id")
@_CONFIG
@_JSON
def delete(id: str, config: Path, as_json: bool) -> None:
    """Remove the key ID for good; what was spent with it stays in the ledger.

    \b
    headrace gateway keys delete 3f9c2a
    """

    async def change(store: SqliteStore) -> None:
        await store.delete_key(id)

    _with_store(config, change)
    click.echo(json.dumps({"id": id, "removed": True}) if as_json else f"{id} is removed")


def _block(id: str, config: Path, as_json: bool, *, blocked: bool) -> None:
    async def change(store: SqliteStore) -> None:
        await store.block("key", id, blocked=blocked)

    _with_store(config, change)
    done = {"id": id, "blocked": blocked}
    click.echo(json.dumps(done) if as_json else f"{id} is {'blocked' if blocked else 'open again'}")


def _with_store(path: Path, work: Callable[[SqliteStore], Awaitable[T]]) -> T:
    """Raises HeadraceError where there is no store, or what is wanted is not possible."""
    from headrace.gateway.building.accounts import open_store, records_of
    from headrace.gateway.settings.read import read_settings
    from headrace.gateway.settings.secret import Sources

    settings = read_settings(path)
    named = settings.access.store
    if named is None:
        raise ConfigError(
            f"{path}: access.store is missing: it names the file that keys are kept in, "
            "as `access: {store: gateway.db}`"
        )
    configured = records_of(settings.access, Sources(os.environ, path.parent))

    async def run() -> T:
        store = await open_store(
            path.parent / named, configured, now_ns=time.time_ns, random_bytes=os.urandom
        )
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _parent(options: dict[str, Any]) -> Parent | None:
    from headrace.gateway.accounts.records import Parent

    named = [
        Parent(level, options[level])
        for level in ("organisation", "team", "user")
        if options[level] is not None
    ]
    if len(named) > 1:
        raise ConfigError("--organisation, --team and --user: a key belongs to one; give one")
    return named[0] if named else None


def _show_new(key_id: str, key: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"id": key_id, "key": key}))
    else:
        click.echo(f"{key}\nis key {key_id}; it is not shown again")


def _as_dict(record: KeyRecord) -> dict[str, Any]:
    parent = record.parent
    return {
        "id": record.id,
        "label": record.label,
        "ends": [one.end for one in record.secrets],
        "parent": None if parent is None else f"{parent.level} {parent.name}",
        "models": list(record.terms.models),
        "blocked": record.blocked,
        "created_ms": record.created_ms,
        "expires_ms": record.expires_ms,
    }
