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
    """A budget in US dollars per window."""

    usd: Annotated[float, Meta(ge=0, le=1e9)]
    per: WindowName = "1M"
    calendar: Annotated[
        bool, Meta(description="Whether the window is that of the UTC calendar; rolling otherwise.")
    ] = False
    raised_to_usd: Annotated[
        Annotated[float, Meta(ge=0, le=1e9)] | None,
        Meta(description="A higher amount until raised_until_ms; give both or neither."),
    ] = None
    raised_until_ms: Annotated[
        Annotated[int, Meta(ge=0, le=2**53)] | None, Meta(description="Milliseconds since 1970.")
    ] = None


class KeyWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to be made. It belongs to an organisation, a team or a user, at most one of them;
    settings without a description are as for a key of the file (access.keys)."""

    label: Annotated[str, Meta(max_length=128)] = ""
    organisation: Name | None = None
    team: Name | None = None
    user: Name | None = None
    models: Annotated[Names, Meta(description="Names and globs it may use; all if empty.")] = ()
    budgets: Annotated[tuple[NewBudget, ...], Meta(max_length=16)] = ()
    rpm: Annotated[Count | None, Meta(description="Requests in any minute.")] = None
    tpm: Annotated[Count | None, Meta(description="Tokens in any minute.")] = None
    concurrency: Annotated[Count | None, Meta(description="Requests at the same time.")] = None
    expires_days: Annotated[
        Annotated[float, Meta(gt=0, le=_MOST_DAYS)] | None,
        Meta(description="Days until it expires; null: never."),
    ] = None
    tags: Names = ()
    guardrails: Names = ()
    priority: Priority | None = None
    data_collection: DataCollection = "allow"
    zero_retention: bool = False
    regions: Regions | None = None
    when_stores_are_down: WhenDown | None = None


class KeyEdited(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a key; whatever is omitted stays."""

    label: Annotated[str, Meta(max_length=128)] | UnsetType = UNSET
    models: Annotated[
        Names | UnsetType, Meta(description="Replaces the previous ones; [] is all.")
    ] = UNSET
    budgets: Annotated[
        Annotated[tuple[NewBudget, ...], Meta(max_length=16)] | UnsetType,
        Meta(
            description="In US dollars; replaces the previous ones. A budget with the same "
            "window keeps what was spent."
        ),
    ] = UNSET
    rpm: Annotated[Count | UnsetType | None, Meta(description="null removes the limit.")] = UNSET
    tpm: Annotated[Count | UnsetType | None, Meta(description="null removes the limit.")] = UNSET
    concurrency: Annotated[
        Count | UnsetType | None, Meta(description="null removes the limit.")
    ] = UNSET
    expires_days: Annotated[
        Annotated[float, Meta(gt=0, le=_MOST_DAYS)] | UnsetType | None,
        Meta(description="Days from now until it expires; null: never."),
    ] = UNSET
    tags: Annotated[Names | UnsetType, Meta(description="Replaces the previous ones.")] = UNSET
    guardrails: Annotated[Names | UnsetType, Meta(description="Replaces the previous ones.")] = (
        UNSET
    )
    priority: Annotated[
        Priority | UnsetType | None, Meta(description="null: that of the level above.")
    ] = UNSET
    data_collection: DataCollection | UnsetType = UNSET
    zero_retention: bool | UnsetType = UNSET
    regions: Annotated[
        Regions | UnsetType | None, Meta(description="null: those of the level above.")
    ] = UNSET
    when_stores_are_down: Annotated[
        WhenDown | UnsetType | None, Meta(description="null: that of the level above.")
    ] = UNSET


class RotateWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to rotate a key."""

    overlap_days: Annotated[Days, Meta(description="How long the old secret stays valid too.")] = (
        0.0
    )


class KeyMade(msgspec.Struct, frozen=True, kw_only=True):
    """A new key."""

    id: str
    key: Annotated[
        str,
        Meta(
            description="The key itself, shown only this once; the gateway keeps only a digest "
            "of it."
        ),
    ]


class KeyChanged(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a key after a change."""

    id: str
    blocked: bool = False
    removed: Annotated[bool, Meta(description="Whether it is gone.")] = False


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
    blocked = next((key.blocked for key in (await store.read()).keys if key.id == id), False)
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
        if any(key.id == id for key in part.keys):
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
    """The traits that are given."""
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
