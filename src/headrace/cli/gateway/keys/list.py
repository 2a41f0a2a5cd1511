"""`headrace gateway keys list`: keys with their budgets, limits, use and end."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.gateway.keys.store import config_option, json_option, with_store
from headrace.cli.visible import visible

if TYPE_CHECKING:
    from headrace.gateway.accounts.records import KeyRecord
    from headrace.gateway.accounts.sqlite_store import SqliteStore

# Terminals are at least so wide, and files and pipes have no width.
_NARROW_COLUMNS = 80


@click.command("list")
@config_option
@json_option
def list_keys(config: Path, as_json: bool) -> None:
    """List the keys in the store, without their secrets.

    Each with its budgets and what was spent of them (a second behind), its limits, and its expiry.
    Keys that are defined in the gateway's file are not listed.

    \b
    headrace gateway keys list
    headrace gateway keys list --json
    """
    now_ms = time.time_ns() // 1_000_000
    found = with_store(config, lambda store: keys_as_dicts(store, now_ms))
    if as_json:
        click.echo(json.dumps(found))
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("key", overflow="fold", min_width=16)
    table.add_column("belongs to", overflow="fold")
    table.add_column("models", overflow="fold")
    table.add_column("budgets and limits", overflow="fold", min_width=22)
    table.add_column("state", overflow="fold")
    for one in found:
        ends = ", ".join(f"…{end}" for end in one["ends"])
        table.add_row(
            "\n".join(visible(part) for part in (one["id"], one["label"], ends) if part),
            visible(one["parent"] or "-"),
            "\n".join(visible(model) for model in one["models"]) or "all",
            "\n".join(map(visible, (*_metered_lines(one), *_trait_lines(one)))) or "none",
            "\n".join(_state_lines(one, now_ms)),
        )
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = _NARROW_COLUMNS
    console.print(table)


async def keys_as_dicts(store: SqliteStore, now_ms: int) -> list[dict[str, Any]]:
    """Every key of the store, with what was spent of its budgets as far as the store knows."""
    used: Counter[str] = Counter()
    for spent in await store.spent(at_ms=now_ms):
        used[spent.meter_id] += spent.amount
    return [_as_dict(record, used, now_ms) for record in (await store.read()).keys]


def terms_lines(one: Mapping[str, Any]) -> list[str]:
    """What a key of `keys_as_dicts` may do, for people."""
    ends_ms = one["expires_ms"]
    return [
        f"models {', '.join(one['models']) or 'all'}",
        *(_metered_lines(one) or ["no budget, no limits"]),
        *_trait_lines(one),
        "ends never" if ends_ms is None else f"ends {_moment(ends_ms)}",
    ]


def _as_dict(record: KeyRecord, used: Mapping[str, int], now_ms: int) -> dict[str, Any]:
    from headrace.gateway.accounts.errors import amount_text
    from headrace.gateway.accounts.meter import meters_of

    parent, terms, policy = record.parent, record.terms, record.terms.data_policy
    budgets = [meter for meter in meters_of("key", record.id, terms) if meter.is_budget]
    return {
        "id": record.id,
        "label": record.label,
        "ends": [secret.end for secret in record.secrets],
        "parent": None if parent is None else f"{parent.level} {parent.name}",
        "models": list(terms.models),
        "budgets": [
            {
                "per": meter.window.name,
                "calendar": meter.window.calendar,
                "model": meter.model,
                "unit": meter.unit,
                "limit": meter.amount,
                "raised_to": meter.raised_to if meter.is_raised(now_ms) else None,
                "raised_until_ms": meter.raised_until_ms if meter.is_raised(now_ms) else None,
                "used": used.get(meter.id, 0),
                "limit_text": amount_text(meter.amount, meter.unit),
                "used_text": amount_text(used.get(meter.id, 0), meter.unit),
            }
            for meter in budgets
        ],
        "limits": [
            {
                "model": limit.model,
                "rpm": limit.rpm,
                "tpm": limit.tpm,
                "concurrency": limit.concurrency,
            }
            for limit in terms.limits
        ],
        "tags": list(terms.tags),
        "guardrails": list(terms.guardrails),
        "priority": terms.priority,
        "data_collection": policy.data_collection,
        "zero_retention": policy.zero_retention,
        "regions": None if policy.regions is None else list(policy.regions),
        "when_stores_are_down": terms.when_stores_are_down,
        "blocked": record.blocked,
        "created_ms": record.created_ms,
        "expires_ms": record.expires_ms,
    }


def _metered_lines(one: Mapping[str, Any]) -> list[str]:
    from headrace.gateway.accounts.errors import amount_text

    lines = []
    for budget in one["budgets"]:
        window = "in all" if budget["per"] == "total" else f"per {budget['per']}"
        calendar = " (UTC)" if budget["calendar"] else ""
        lines.append(
            f"{budget['used_text']} of {budget['limit_text']} {window}{calendar}"
            + _of_model(budget["model"])
        )
        if budget["raised_to"] is not None:
            until = _moment(budget["raised_until_ms"])
            lines.append(
                f"raised to {amount_text(budget['raised_to'], budget['unit'])} until {until}"
            )
    for limits in one["limits"]:
        for name, words in (("rpm", "rpm"), ("tpm", "tpm"), ("concurrency", "at once")):
            if limits[name] is not None:
                lines.append(f"{limits[name]:,} {words}{_of_model(limits['model'])}")
    return lines


def _trait_lines(one: Mapping[str, Any]) -> list[str]:
    """The traits that differ from their defaults."""
    named = ("tags", "guardrails", "regions")
    lines = [f"{name} {', '.join(one[name])}" for name in named if one[name]]
    if one["priority"] is not None:
        lines.append(f"priority {one['priority']}")
    if one["data_collection"] == "deny":
        lines.append("no data collection")
    if one["zero_retention"]:
        lines.append("zero retention")
    if one["when_stores_are_down"] is not None:
        lines.append(f"{one['when_stores_are_down']} when stores are down")
    return lines


def _of_model(model: str) -> str:
    return "" if model == "*" else f" of {model}"


def _state_lines(one: Mapping[str, Any], now_ms: int) -> list[str]:
    ends_ms = one["expires_ms"]
    lines = ["blocked" if one["blocked"] else "active"]
    if ends_ms is not None:
        if ends_ms <= now_ms:
            return ["ended", _moment(ends_ms)[:10]]
        lines.append(f"until {_moment(ends_ms)[:10]}")
    return lines


def _moment(at_ms: int) -> str:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%MZ")
