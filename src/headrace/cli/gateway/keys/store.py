"""What commands of `headrace gateway keys` share: the file of keys, and how a new key is shown."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from headrace.errors import ConfigError, shown

if TYPE_CHECKING:
    from headrace.gateway.accounts.sqlite_store import SqliteStore

T = TypeVar("T")

config_option = click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    default=Path("gateway.yaml"),
    help="The gateway's file. [default: gateway.yaml]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def with_store(path: Path, work: Callable[[SqliteStore], Awaitable[T]], *, id: str = "") -> T:
    """The result of `work` on the store of the gateway's file at `path`, from which no secret is
    read.

    id: the key that the work is about. Raises HeadraceError if there is no store, if the key is
    defined in the gateway's file, or if the change is not possible.
    """
    from headrace.gateway.building.accounts import groups_of, open_store
    from headrace.gateway.settings.read import read_settings

    access = read_settings(path).access
    if id in access.keys:
        raise ConfigError(
            f"key {shown(id)} is defined in {path} itself: change access.keys.{id} there and "
            "reload; this command is for keys that `headrace gateway keys create` made"
        )
    named = access.store
    if named is None:
        raise ConfigError(
            f"{path}: access.store is missing: it names the file in which keys are kept, as "
            f"`access: {{store: gateway.db}}`"
        )

    async def run() -> T:
        store = await open_store(
            path.parent / named, groups_of(access), now_ns=time.time_ns, random_bytes=os.urandom
        )
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def show_new(key_id: str, key: str, as_json: bool) -> None:
    """Print the key, the only time that it can be read."""
    if as_json:
        click.echo(json.dumps({"id": key_id, "key": key}))
    else:
        click.echo(f"{key}\nis key {key_id}; it is not shown again")
