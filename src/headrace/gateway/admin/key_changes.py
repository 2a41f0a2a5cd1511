"""POST, PATCH and DELETE of /api/keys: what `headrace gateway keys` does."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from headrace.errors import ConfigError
from headrace.gateway.accounts.edit import (
    PriorityWord,
    check_guardrails,
    priority_of,
    with_dollar_budgets,
    with_limits,
    with_traits,
)
from headrace.gateway.accounts.errors import StoreBusyError, StoreError
from headrace.gateway.accounts.key import NewKey
from headrace.gateway.accounts.records import KeyRecord, Parent
from headrace.gateway.accounts.store import AccountStore
from headrace.gateway.accounts.terms import Budget, Terms, WhenDown
from headrace.gateway.admin.call import Call
from headrace.gateway.admin.errors import AdminError
from headrace.gateway.admin.keys import records
from headrace.gateway.admin.reply import json_reply
from headrace.gateway.settings.access import WindowName
from headrace.protocol.neutral.dollars import NUSD_PER_USD

_MS_PER_DAY = 86_400_000
# Ten years; beyond it a key never ends.
_MOST_DAYS = 3650
_LIMITS = ("rpm", "tpm", "concurrency")
_TRAITS = ("tags", "guardrails", "priority", "data_collection", "zero_retention", "regions",
           "when_stores_are_down")  # fmt: skip
Name = Annotated[str, Meta(min_length=1, max_length=128)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Names = Annotated[tuple[Name, ...], Meta(max_length=1000)]
Regions = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=1000)]
Priority = PriorityWord | Annotated[int, Meta(ge=-1000, le=1000)]
DataCollection = Literal["allow", "deny"]
Days = Annotated[float, Meta(ge=0, le=_MOST_DAYS)]


class NewBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """At most so many US dollars per window. calendar: by UTC's calendar, else rolling.
    raised_to_usd: more than that until raised_until_ms, milliseconds since 1970; both or none."""

    usd: Annotated[float, Meta(ge=0, le=1e9)]
    per: WindowName = "1M"
    calendar: bool = False
    raised_to_usd: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    raised_until_ms: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class KeyWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to be made. organisation, team, user: what it belongs to, one of them at most. models:
    names and globs it may use; all if empty. rpm, tpm, concurrency: requests and tokens in any
    minute, and requests at once. expires_days: until it ends; null: never. All others are as
    those of a key of the file (access.keys)."""

    label: Annotated[str, Meta(max_length=128)] = ""
    organisation: Name | None = None
    team: Name | None = None
    user: Name | None = None
    models: Names = ()
    budgets: Annotated[tuple[NewBudget, ...], Meta(max_length=16)] = ()
    rpm: Count | None = None
    tpm: Count | None = None
    concurrency: Count | None = None
    expires_days: Annotated[float, Meta(gt=0, le=_MOST_DAYS)] | None = None
    tags: Names = ()
    guardrails: Names = ()
    priority: Priority | None = None
    data_collection: DataCollection = "allow"
    zero_retention: bool = False
    regions: Regions | None = None
    when_stores_are_down: WhenDown | None = None


class KeyEdited(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a key shall be otherwise; what is not given stays. models: in place of those before;
    [] is all. budgets: in dollars, in place of those before; one of the same window goes on with
    what was spent. rpm, tpm, concurrency: null takes it away. expires_days: from now on until it
    ends; null: never. tags, guardrails: in place of those before. priority, regions,
    when_stores_are_down: null is as above the key."""

    label: Annotated[str, Meta(max_length=128)] | UnsetType = UNSET
    models: Names | UnsetType = UNSET
    budgets: Annotated[tuple[NewBudget, ...], Meta(max_length=16)] | UnsetType = UNSET
    rpm: Count | UnsetType | None = UNSET
    tpm: Count | UnsetType | None = UNSET
    concurrency: Count | UnsetType | None = UNSET
    expires_days: Annotated[float, Meta(gt=0, le=_MOST_DAYS)] | UnsetType | None = UNSET
    tags: Names | UnsetType = UNSET
    guardrails: Names | UnsetType = UNSET
    priority: Priority | UnsetType | None = UNSET
    data_collection: DataCollection | UnsetType = UNSET
    zero_retention: bool | UnsetType = UNSET
    regions: Regions | UnsetType | None = UNSET
    when_stores_are_down: WhenDown | UnsetType | None = UNSET


class RotateWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """overlap_days: how long the old key opens it too."""

    overlap_days: Days = 0.0


class KeyMade(msgspec.Struct, frozen=True, kw_only=True):
    """key: the key itself, which is shown this once; what is kept is a digest of it."""

    id: str
    key: str


class KeyChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is now. removed: it is gone."""

    id: str
    blocked: bool = False
    removed: bool = False


async def create_key(call: Call) -> Response:
    """Make a key."""
    store = _store(call)
    wanted = await call.body(KeyWanted)
    expires_ms = None
    if wanted.expires_days is not None:
        expires_ms = round(call.shared.wall_s() * 1000 + wanted.expires_days * _MS_PER_DAY)
    try:
        check_guardrails(wanted.guardrails, call.house.settings.guardrails)
        made = await store.create_key(
            parent=_parent(wanted), terms=_terms(wanted), label=wanted.label,
            expires_ms=expires_ms,
        )  # fmt: skip
    except (ConfigError, StoreError) as error:
        raise _refused(error) from error
    return await _shown_once(call, made)


async def edit_key(call: Call) -> Response:
    """Change what `KeyEdited` gives; its secret stays."""
    store = await _store_of_key(call)
    wanted = await call.body(KeyEdited)
    id = call.path("id")
    now_ms = round(call.shared.wall_s() * 1000)
    try:
        if wanted.guardrails is not UNSET:
            check_guardrails(wanted.guardrails, call.house.settings.guardrails)
        await store.edit_key(id, lambda record: _edited(record, wanted, now_ms))
    except (ConfigError, StoreError) as error:
        raise _refused(error) from error
    await call.house.keys_changed()
    blocked = next((one.blocked for one in (await store.read()).keys if one.id == id), False)
    return json_reply(KeyChanged(id=id, blocked=blocked))


async def rotate_key(call: Call) -> Response:
    """Make another key of the same id; what was spent stays with it."""
    store = await _store_of_key(call)
    wanted = await call.body(RotateWanted)
    try:
        made = await store.rotate_key(
            call.path("id"), overlap_ms=round(wanted.overlap_days * _MS_PER_DAY)
        )
    except StoreError as error:
        raise _refused(error) from error
    return await _shown_once(call, made)


async def block_key(call: Call) -> Response:
    """Refuse its requests."""
    return await _block(call, blocked=True)


async def unblock_key(call: Call) -> Response:
    """Serve its requests again."""
    return await _block(call, blocked=False)


async def delete_key(call: Call) -> Response:
    """Remove it for good; what was spent with it stays in the ledger."""
    store = await _store_of_key(call)
    id = call.path("id")
    try:
        await store.delete_key(id)
    except StoreError as error:
        raise _refused(error) from error
    await call.house.keys_changed()
    return json_reply(KeyChanged(id=id, removed=True))


async def _block(call: Call, *, blocked: bool) -> Response:
    store = await _store_of_key(call)
    id = call.path("id")
    try:
        await store.block("key", id, blocked=blocked)
    except StoreError as error:
        raise _refused(error) from error
    await call.house.keys_changed()
    return json_reply(KeyChanged(id=id, blocked=blocked))


async def _shown_once(call: Call, made: NewKey) -> Response:
    await call.house.keys_changed()
    return json_reply(KeyMade(id=made.key_id, key=made.reveal()))


def _store(call: Call) -> AccountStore:
    if call.house.store is None:
        raise AdminError(
            409, "the only keys are those in the gateway's file: write `access: {store: "
                "gateway.db}` into it and restart the gateway to make keys here", "no_store",
        )  # fmt: skip
    return call.house.store


async def _store_of_key(call: Call) -> AccountStore:
    """The store that has the key of the path."""
    id = call.path("id")
    for source, part in await records(call):
        if any(one.id == id for one in part.keys):
            if source == "store":
                return _store(call)
            raise AdminError(
                409, "this key is defined in the gateway's file; change it there and reload",
                "key_of_file",
            )  # fmt: skip
    raise AdminError(404, "there is no key with this id", "not_found")


def _parent(wanted: KeyWanted) -> Parent | None:
    named = [
        (level, name)
        for level, name in (
            ("organisation", wanted.organisation),
            ("team", wanted.team),
            ("user", wanted.user),
        )
        if name is not None
    ]
    if len(named) > 1:
        raise AdminError(
            400, "organisation, team and user: a key belongs to only one; give one", "bad_request"
        )
    return Parent(*named[0]) if named else None  # type: ignore[arg-type]


def _terms(wanted: KeyWanted) -> Terms:
    terms = Terms(models=wanted.models, budgets=_budgets(wanted.budgets))
    terms = with_traits(terms, _traits(wanted))
    return with_limits(terms, {name: getattr(wanted, name) for name in _LIMITS})


def _traits(wanted: KeyWanted | KeyEdited) -> dict[str, Any]:
    """Those that are given."""
    found = {name: getattr(wanted, name) for name in _TRAITS}
    given = {name: value for name, value in found.items() if value is not UNSET}
    if "priority" in given:
        given["priority"] = priority_of(given["priority"])
    return given


def _budgets(wanted: tuple[NewBudget, ...]) -> tuple[Budget, ...]:
    return tuple(
        Budget(
            amount=round(one.usd * NUSD_PER_USD),
            window=one.per,
            calendar=one.calendar,
            raised_to=_nusd(one.raised_to_usd),
            raised_until_ms=one.raised_until_ms,
        )
        for one in wanted
    )


def _nusd(usd: float | None) -> int | None:
    return None if usd is None else round(usd * NUSD_PER_USD)


def _edited(record: KeyRecord, wanted: KeyEdited, now_ms: int) -> KeyRecord:
    terms, label, expires_ms = record.terms, record.label, record.expires_ms
    if wanted.models is not UNSET:
        terms = msgspec.structs.replace(terms, models=wanted.models)
    if wanted.budgets is not UNSET:
        terms = with_dollar_budgets(terms, _budgets(wanted.budgets))
    terms = with_traits(terms, _traits(wanted))
    limits = {name: getattr(wanted, name) for name in _LIMITS}
    terms = with_limits(terms, {name: one for name, one in limits.items() if one is not UNSET})
    if wanted.label is not UNSET:
        label = wanted.label
    if wanted.expires_days is not UNSET:
        days = wanted.expires_days
        expires_ms = None if days is None else round(now_ms + days * _MS_PER_DAY)
    return msgspec.structs.replace(record, terms=terms, label=label, expires_ms=expires_ms)


def _refused(error: ConfigError | StoreError) -> AdminError:
    if isinstance(error, StoreBusyError):
        return AdminError(503, str(error), "store_busy", retry_after_s=1)
    return AdminError(400, str(error), "not_possible")
