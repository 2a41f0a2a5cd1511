"""What people call keys, beside their ids in what commands print."""

from __future__ import annotations

from pathlib import Path

from headrace.cli.gateway.keys.store import with_store
from headrace.errors import HeadraceError


def key_labels(config: Path) -> dict[str, str]:
    """By the ids of keys that have a label. config: the gateway's file. Where it, or its file of
    keys, is not there or cannot be read, nobody is known."""
    from headrace.gateway.settings.read import read_settings

    try:
        named = read_settings(config).access.store
        if named is None or not (config.parent / named).exists():
            return {}
        records = with_store(config, lambda store: store.read())
    except HeadraceError:
        return {}
    return {one.id: one.label for one in records.keys if one.label}


def labelled(id: str, labels: dict[str, str]) -> str:
    """The id, with the label where there is one."""
    return f"{id} ({labels[id]})" if id in labels else id
