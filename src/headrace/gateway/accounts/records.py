"""Organisations, teams, users and keys as stored or configured."""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.errors import ConfigError, shown
from headrace.gateway.accounts.key import Secret
from headrace.gateway.accounts.terms import Level, Terms

GroupLevel = Literal["organisation", "team", "user"]
# From the top; a parent is of a level before its child's.
LEVELS: tuple[Level, ...] = ("organisation", "team", "user", "key")
MAX_NAME_CHARACTERS = 128


class Parent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The group that something belongs to."""

    level: GroupLevel
    name: str


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An organisation, a team or a user."""

    level: GroupLevel
    name: str
    """Unique within its level."""
    parent: Parent | None = None
    terms: Terms = Terms()
    blocked: bool = False

    def __post_init__(self) -> None:
        check_name(self.level, self.name)
        if self.parent is not None and not _is_above(self.parent.level, self.level):
            raise ConfigError(
                f"{self.level} {shown(self.name)}: parent is a {self.parent.level}; "
                "teams belong to organisations, users to teams or organisations"
            )


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A virtual key."""

    id: str
    """Its name, which is not secret."""
    secrets: tuple[Secret, ...] = ()
    """Each of them is valid; for a while after a rotation there are two."""
    parent: Parent | None = None
    label: str = ""
    terms: Terms = Terms()
    blocked: bool = False
    created_ms: int = 0
    expires_ms: int | None = None
    """When the whole key expires; None for never."""

    def __post_init__(self) -> None:
        check_name("key", self.id)


class Records(msgspec.Struct, frozen=True):
    """The groups and keys of a store."""

    groups: tuple[Group, ...] = ()
    keys: tuple[KeyRecord, ...] = ()


NO_RECORDS = Records()


def check_name(level: str, name: str) -> None:
    """ConfigError for a name that no meter and no log could carry."""
    plain = name.isprintable() and "|" not in name and name == name.strip()
    if not plain or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise ConfigError(
            f"{level} {shown(name)}: a name has 1 to {MAX_NAME_CHARACTERS} printable "
            "characters, no vertical bar, and no space at either end"
        )


def _is_above(parent: Level, child: Level) -> bool:
    return LEVELS.index(parent) < LEVELS.index(child)
