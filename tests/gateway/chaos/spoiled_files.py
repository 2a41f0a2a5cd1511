"""A gateway's file with each of its secrets in turn where or as it should not be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from tests.gateway.chaos.every_secret import SECRETS


def _spoils_kind(inner: Any, name: Any) -> None:
    inner[name] = {"value": inner[name], "is": [inner[name]]}


def _spoils_name(inner: Any, name: Any) -> None:
    if isinstance(inner, dict):
        inner[f"{name}x"] = inner.pop(name)
    else:
        inner[name] = {inner[name]: inner[name]}


def _spoils_text(inner: Any, name: Any) -> None:
    inner[name] = f"{inner[name]} \u00e9"


def _spoils_reference(inner: Any, name: Any) -> None:
    # A dash is in no variable's name: what is one would rightly be told.
    inner[name] = f"env:{inner[name]}-"


def _spoils_address(inner: Any, name: Any) -> None:
    inner[name] = f"http+{inner[name]}:port/[::"


SPOILS = (_spoils_kind, _spoils_name, _spoils_text, _spoils_reference, _spoils_address)


def places_of(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where texts with secrets stand."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from places_of(one, (*at, name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from places_of(one, (*at, number))
    elif isinstance(value, str) and any(secret in value for secret in SECRETS.values()):
        yield at


def wrong_files(good: dict[str, Any]) -> Iterator[str]:
    """The file with each secret in turn where or as it should not be."""
    for place in places_of(good):
        for spoil in SPOILS:
            settings = json.loads(json.dumps(good))
            inner = settings
            for name in place[:-1]:
                inner = inner[name]
            spoil(inner, place[-1])
            yield yaml.safe_dump(settings)
    first = next(iter(SECRETS.values()))
    yield f"providers: {{p: {{api_key: [{first}"
    yield f"{first}\n: {first}"
    yield f"providers: !!python/object {first}"
