"""What people call keys, beside their ids in what commands print."""

from __future__ import annotations

from pathlib import Path

from headrace.cli.gateway.keys.store import with_store
from headrace.errors import HeadraceError


def key_labels(config: Path) -> dict[str, str]:
    """Labels of keys by id, for the keys that have one.

    Empty where the gateway's file, or its file of keys, does not exist or cannot be read.
    """
    from headrace.gateway.settings.read import read_settings

    try:
        named = read_settings(config).access.store
        if named is None or not (config.parent / named).exists():
            return {}
        records = with_store(config, lambda store: store.read())
    except HeadraceError:
        return {}
    return {key.id: key.label for key in records.keys if key.label}


def labelled(id: str, labels: dict[str, str]) -> str:
    """The id, followed by the label if there is one."""
    return f"{id} ({labels[id]})" if id in labels else id
