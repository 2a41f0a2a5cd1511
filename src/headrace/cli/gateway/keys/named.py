"""Who asks, for commands that are told a key by its id or label and need no secret of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.gateway.keys.store import with_store

if TYPE_CHECKING:
    from headrace.gateway.accounts.caller import Caller
    from headrace.gateway.settings.gateway import GatewaySettings


def caller_at(config: Path, settings: GatewaySettings, key: str) -> Caller:
    """The caller of a key from the gateway's file, or from the store that it names. Raises
    HeadraceError."""
    from headrace.gateway.accounts.caller_lookup import caller_named
    from headrace.gateway.accounts.records import NO_RECORDS
    from headrace.gateway.accounts.roster import Roster
    from headrace.gateway.building.accounts import records_without_secrets

    access, stored = settings.access, NO_RECORDS
    if access.store is not None and (config.parent / access.store).exists():
        stored = with_store(config, lambda store: store.read())
    return caller_named(Roster(records_without_secrets(access), stored).callers(), key)
