"""All keys and what holds for each, in memory; replaced as a whole when something changes."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from headrace.errors import ConfigError, shown
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.errors import BlockedKeyError, ExpiredKeyError, UnknownKeyError
from headrace.gateway.accounts.key import Secret, digest_of
from headrace.gateway.accounts.meter import Meter, meters_of
from headrace.gateway.accounts.records import Group, GroupLevel, KeyRecord, Records
from headrace.gateway.accounts.terms import DataPolicy, Level, Terms


class _Entry(NamedTuple):
    digest: bytes
    caller: Caller
    blocked: tuple[Level, str] | None
    expires_ms: int | None


class Roster:
    """A table of keys that looks one up in the time of one hash. ConfigError for records that
    contradict each other.

    Digests, not keys, are looked up, so how long it takes says nothing of a key.
    """

    def __init__(self, *parts: Records) -> None:
        """parts: of the configuration and the store; no name may be in two."""
        groups = _by_name(group for part in parts for group in part.groups)
        self._entries: dict[bytes, _Entry] = {}
        self._keys: dict[str, Caller] = {}
        for record in (record for part in parts for record in part.keys):
            self._add(record, groups)

    def __len__(self) -> int:
        return len(self._keys)

    def __repr__(self) -> str:
        return f"Roster({len(self._keys)} keys)"

    def caller(self, presented: str, at_ms: int) -> Caller:
        """The caller of a key. Raises UnknownKeyError, BlockedKeyError or ExpiredKeyError."""
        digest = digest_of(presented)
        entry = None if digest is None else self._entries.get(digest)
        if entry is None or digest is None or not hmac.compare_digest(entry.digest, digest):
            raise UnknownKeyError
        if entry.blocked is not None:
            raise BlockedKeyError(*entry.blocked)
        if entry.expires_ms is not None and entry.expires_ms <= at_ms:
            raise ExpiredKeyError(entry.caller.key_id, entry.expires_ms)
        return entry.caller

    def callers(self) -> tuple[Caller, ...]:
        """The callers of all keys, valid now or not."""
        return tuple(self._keys.values())

    def meters(self) -> dict[str, Meter]:
        """All that keys are counted by, by their ids."""
        return {meter.id: meter for caller in self._keys.values() for meter in caller.meters}

    def _add(self, record: KeyRecord, groups: Mapping[tuple[str, str], Group]) -> None:
        if record.id in self._keys:
            raise ConfigError(
                f"key {shown(record.id)} is defined twice, perhaps in the configuration and in "
                "the store; rename one"
            )
        above = _above(record, groups)
        caller = _caller(record, above)
        self._keys[record.id] = caller
        path: list[tuple[Level, str, bool]] = [(g.level, g.name, g.blocked) for g in above]
        path.append(("key", record.id, record.blocked))
        blocked = next(((level, name) for level, name, is_blocked in path if is_blocked), None)
        for secret in record.secrets:
            digest = bytes.fromhex(secret.digest)
            if digest in self._entries:
                other = self._entries[digest].caller.key_id
                raise ConfigError(
                    f"keys {shown(other)} and {shown(record.id)} have the same secret; make "
                    "another for one of them"
                )
            mine = msgspec.structs.replace(caller, key_end=secret.end)
            self._entries[digest] = _Entry(digest, mine, blocked, _first_end(record, secret))


def _by_name(groups: Iterable[Group]) -> dict[tuple[str, str], Group]:
    found: dict[tuple[str, str], Group] = {}
    for group in groups:
        if (group.level, group.name) in found:
            raise ConfigError(
                f"{group.level} {shown(group.name)} is defined twice, perhaps in the "
                "configuration and in the store; rename one"
            )
        found[group.level, group.name] = group
    return found


def _above(record: KeyRecord, groups: Mapping[tuple[str, str], Group]) -> list[Group]:
    """The groups of a record from the organisation down. Parents are of higher levels, so this
    ends."""
    path: list[Group] = []
    child, parent = f"key {shown(record.id)}", record.parent
    while parent is not None:
        group = groups.get((parent.level, parent.name))
        if group is None:
            raise ConfigError(f"{child}: there is no {parent.level} {shown(parent.name)}")
        path.append(group)
        child, parent = f"{group.level} {shown(group.name)}", group.parent
    return path[::-1]


def _caller(record: KeyRecord, above: list[Group]) -> Caller:
    names: dict[GroupLevel, str] = {group.level: group.name for group in above}
    terms: list[tuple[Level, str, Terms]] = [(g.level, g.name, g.terms) for g in above]
    terms.append(("key", record.id, record.terms))
    caller = Caller(key_id=record.id)
    policy = DataPolicy()
    priority, when_down = caller.priority, caller.when_stores_are_down
    for _, _, term in terms:
        policy = policy.with_(term.data_policy)
        priority = priority if term.priority is None else term.priority
        when_down = term.when_stores_are_down or when_down
    return Caller(
        key_id=record.id,
        label=record.label,
        organisation=names.get("organisation"),
        team=names.get("team"),
        user=names.get("user"),
        allowed_models=tuple(term.models for _, _, term in terms if term.models),
        priority=priority,
        tags=tuple(dict.fromkeys(tag for _, _, term in terms for tag in term.tags)),
        guardrails=tuple(
            dict.fromkeys(guardrail for _, _, term in terms for guardrail in term.guardrails)
        ),
        data_policy=policy,
        when_stores_are_down=when_down,
        meters=tuple(meter for part in terms for meter in meters_of(*part)),
    )


def _first_end(record: KeyRecord, secret: Secret) -> int | None:
    ends = [end for end in (record.expires_ms, secret.expires_ms) if end is not None]
    return min(ends, default=None)
