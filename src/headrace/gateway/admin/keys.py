"""GET /api/keys: keys, the groups above them, and how their budgets and limits stand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace.gateway.accounts.counters import Reading
from headrace.gateway.accounts.errors import amount_text
from headrace.gateway.accounts.meter import LimitName, MeterUnit
from headrace.gateway.accounts.records import Group, GroupLevel, KeyRecord, Parent, Records
from headrace.gateway.accounts.terms import Level, WhenDown
from headrace.gateway.accounts.window import WindowName
from headrace.gateway.admin.call import Call
from headrace.gateway.admin.reply import json_reply

_MOST_KEYS = 5000
Source = Literal["file", "store"]


class MeterView(msgspec.Struct, frozen=True, kw_only=True):
    """A limit or a budget. Amounts are in `unit` (nusd: 1e-9 dollars); *_text is for people."""

    limit_name: LimitName
    unit: MeterUnit
    window: Annotated[str, Meta(description="In words.")]
    per: WindowName
    calendar: bool
    model: str
    limit: Annotated[int, Meta(description="The limit now in force.")]
    amount: Annotated[int, Meta(description="The limit without a raise.")]
    raised_to: Annotated[
        int | None,
        Meta(description="The raised limit until raised_until_ms; null if it is not raised."),
    ]
    raised_until_ms: int | None
    used: Annotated[int, Meta(description="By finished requests.")]
    held: Annotated[int, Meta(description="Reserved by running requests.")]
    limit_text: str
    used_text: str
    held_text: str


class KeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A key without its secret. The fields after `meters` are the key's own, without those of the
    levels above it."""

    id: str
    label: str
    ends: Annotated[tuple[str, ...], Meta(description="The last characters of its secrets.")]
    organisation: str | None
    team: str | None
    user: str | None
    models: Annotated[
        tuple[str, ...], Meta(description="[] for all that the levels above it allow.")
    ]
    blocked: bool
    blocked_by: Annotated[str | None, Meta(description="The level above it that is blocked.")]
    created_ms: int | None
    expires_ms: int | None
    source: Annotated[
        Source,
        Meta(description="Where it is defined: a key of the gateway's file is changed there."),
    ]
    meters: tuple[MeterView, ...]
    tags: tuple[str, ...]
    guardrails: tuple[str, ...]
    priority: int | None
    data_collection: Literal["allow", "deny"]
    zero_retention: bool
    regions: tuple[str, ...] | None
    when_stores_are_down: WhenDown | None


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """An organisation, team or user."""

    level: GroupLevel
    name: str
    parent: str | None
    models: tuple[str, ...]
    blocked: bool
    source: Source
    meters: tuple[MeterView, ...]


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """A list of keys."""

    required: Annotated[bool, Meta(description="Whether clients need a key.")]
    can_make: Annotated[bool, Meta(description="Whether there is a store to make keys in.")]
    total: Annotated[
        int, Meta(description="The number of matching keys, of which `keys` has the first.")
    ]
    keys: tuple[KeyView, ...]
    groups: tuple[GroupView, ...]


async def keys(call: Call) -> Response:
    """All of them, or those with some text in their id, label or group."""
    text = (call.text("text") or "").casefold()
    limit = call.number("limit", 500, 1, _MOST_KEYS)
    parts = await records(call)
    groups = {(group.level, group.name): group for _, part in parts for group in part.groups}
    by_whom: dict[tuple[Level, str], list[MeterView]] = {}
    for reading in await call.house.readings():
        whose = reading.meter.level, reading.meter.name
        by_whom.setdefault(whose, []).append(_meter(reading, call.shared.wall_s()))

    def meters(level: Level, name: str) -> tuple[MeterView, ...]:
        return tuple(by_whom.get((level, name), ()))

    found = [
        (source, key, above)
        for source, part in parts
        for key in part.keys
        if text in _words(key, above := above_of(key.parent, groups))
    ]
    found.sort(key=lambda each: (-(each[1].created_ms or 0), each[1].id))
    return json_reply(
        Keys(
            required=call.house.settings.access.require_key,
            can_make=call.house.store is not None,
            total=len(found),
            keys=tuple(_key(*one, meters("key", one[1].id)) for one in found[:limit]),
            groups=tuple(
                _group(source, one, meters(one.level, one.name))
                for source, part in parts
                for one in part.groups
            ),
        )
    )


async def records(call: Call) -> tuple[tuple[Source, Records], ...]:
    """The records of the file, and of the store if there is one. Raises HeadraceError."""
    parts: list[tuple[Source, Records]] = [("file", call.house.configured())]
    if call.house.store is not None:
        parts.append(("store", await call.house.store.read()))
    return tuple(parts)


def above_of(parent: Parent | None, groups: dict[tuple[GroupLevel, str], Group]) -> list[Group]:
    """The groups above, from the nearest up; a deleted group ends the list."""
    found: list[Group] = []
    while parent is not None and (group := groups.get((parent.level, parent.name))) is not None:
        found.append(group)
        parent = group.parent
    return found


def _words(key: KeyRecord, above: Iterable[Group]) -> str:
    return " ".join((key.id, key.label, *(one.name for one in above))).casefold()


def _key(
    source: Source, key: KeyRecord, above: list[Group], meters: tuple[MeterView, ...]
) -> KeyView:
    names = {one.level: one.name for one in above}
    blocked = next((f"{one.level} {one.name}" for one in above if one.blocked), None)
    return KeyView(
        id=key.id,
        label=key.label,
        ends=tuple(secret.end for secret in key.secrets if secret.end),
        organisation=names.get("organisation"),
        team=names.get("team"),
        user=names.get("user"),
        models=key.terms.models,
        blocked=key.blocked,
        blocked_by=blocked,
        created_ms=key.created_ms or None,
        expires_ms=key.expires_ms,
        source=source,
        meters=meters,
        tags=key.terms.tags,
        guardrails=key.terms.guardrails,
        priority=key.terms.priority,
        data_collection=key.terms.data_policy.data_collection,
        zero_retention=key.terms.data_policy.zero_retention,
        regions=key.terms.data_policy.regions,
        when_stores_are_down=key.terms.when_stores_are_down,
    )


def _group(source: Source, group: Group, meters: tuple[MeterView, ...]) -> GroupView:
    parent = group.parent
    return GroupView(
        level=group.level,
        name=group.name,
        parent=None if parent is None else f"{parent.level} {parent.name}",
        models=group.terms.models,
        blocked=group.blocked,
        source=source,
        meters=meters,
    )


def _meter(reading: Reading, now_s: float) -> MeterView:
    meter = reading.meter
    limit = meter.limit(now_ms := round(now_s * 1000))
    is_raised = meter.is_raised(now_ms)
    return MeterView(
        limit_name=meter.limit_name,
        unit=meter.unit,
        window="at once" if meter.unit == "running" else meter.window.words,
        per=meter.window.name,
        calendar=meter.window.calendar,
        model=meter.model,
        limit=limit,
        amount=meter.amount,
        raised_to=meter.raised_to if is_raised else None,
        raised_until_ms=meter.raised_until_ms if is_raised else None,
        used=reading.used,
        held=reading.held,
        limit_text=amount_text(limit, meter.unit),
        used_text=amount_text(reading.used, meter.unit),
        held_text=amount_text(reading.held, meter.unit),
    )
