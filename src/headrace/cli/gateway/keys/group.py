"""`headrace gateway keys`: keys of the gateway, kept in the file that access.store names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.gateway.keys.create import create
from headrace.cli.gateway.keys.edit import edit
from headrace.cli.gateway.keys.list import list_keys
from headrace.cli.gateway.keys.options import MS_PER_DAY
from headrace.cli.gateway.keys.store import config_option, json_option, show_new, with_store
from headrace.cli.numbers import NumberRange

if TYPE_CHECKING:
    from headrace.gateway.accounts.sqlite_store import SqliteStore


@click.group()
def keys() -> None:
    """Make keys of the gateway, change them, and revoke them.

    A running gateway applies a change within a second. Keys that are defined in the file itself are
    changed there.

    \b
    headrace gateway keys create --team search --usd 50 --per 1M
    headrace gateway keys list
    headrace gateway keys edit key_3f9c2a71d05b --usd 100 --rpm none
    headrace gateway keys rotate key_3f9c2a71d05b --overlap-days 7
    headrace gateway keys block key_3f9c2a71d05b
    headrace gateway keys unblock key_3f9c2a71d05b
    """


keys.add_command(create)
keys.add_command(edit)
keys.add_command(list_keys)


@keys.command(short_help="Make another secret for a key and show it.")
@click.argument("id")
@config_option
@click.option("--overlap-days", type=NumberRange(0), default=0.0,
              help="How long the old secret stays valid too. [default: 0]")  # fmt: skip
@json_option
def rotate(id: str, config: Path, overlap_days: float, as_json: bool) -> None:
    """Make another secret for the key ID and show it; what was spent stays with it.

    \b
    headrace gateway keys rotate key_3f9c2a71d05b
    headrace gateway keys rotate key_3f9c2a71d05b --overlap-days 7
    """

    async def make(store: SqliteStore) -> tuple[str, str]:
        made = await store.rotate_key(id, overlap_ms=int(overlap_days * MS_PER_DAY))
        return made.key_id, made.reveal()

    show_new(*with_store(config, make, id=id), as_json)


@keys.command(short_help="Refuse every request with a key until it is unblocked.")
@click.argument("id")
@config_option
@click.option("--off", is_flag=True, help="Unblock it, as `unblock` does.")
@json_option
def block(id: str, config: Path, off: bool, as_json: bool) -> None:
    """Refuse every request with the key ID, until it is unblocked.

    \b
    headrace gateway keys block key_3f9c2a71d05b
    headrace gateway keys block key_3f9c2a71d05b --off
    """

    _block(id, config, as_json, blocked=not off)


@keys.command(short_help="Serve requests with a key again.")
@click.argument("id")
@config_option
@json_option
def unblock(id: str, config: Path, as_json: bool) -> None:
    """Serve requests with the key ID again; the same as `block ID --off`.

    \b
    headrace gateway keys unblock key_3f9c2a71d05b
    """
    _block(id, config, as_json, blocked=False)


@keys.command(short_help="Remove a key for good.")
@click.argument("id")
@config_option
@json_option
def delete(id: str, config: Path, as_json: bool) -> None:
    """Remove the key ID for good; what was spent with it stays in the ledger.

    \b
    headrace gateway keys delete key_3f9c2a71d05b
    """

    async def change(store: SqliteStore) -> None:
        await store.delete_key(id)

    with_store(config, change, id=id)
    click.echo(json.dumps({"id": id, "removed": True}) if as_json else f"{id} is removed")


def _block(id: str, config: Path, as_json: bool, *, blocked: bool) -> None:
    async def change(store: SqliteStore) -> None:
        await store.block("key", id, blocked=blocked)

    with_store(config, change, id=id)
    done = {"id": id, "blocked": blocked}
    click.echo(
        json.dumps(done) if as_json else f"{id} is {('blocked' if blocked else 'unblocked')}"
    )
