"""The store of what has to outlive the process: groups, keys and spending. Requests never wait for
it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

from headrace.gateway.accounts.counters import Mark, Spent
from headrace.gateway.accounts.key import NewKey
from headrace.gateway.accounts.records import Group, GroupLevel, KeyRecord, Parent, Records
from headrace.gateway.accounts.terms import NO_TERMS, Level, Terms


class SpentMore(NamedTuple):
    """Spending to be added to what the store has."""

    meter_id: str
    bucket: int
    amount: int
    leaves_ms: int | None
    """When it leaves its window; None for never."""


class AccountStore(Protocol):
    """A store of accounts: every call raises StoreError for what is not possible, StoreBusyError
    for too much at once.

    Times are in milliseconds since 1970.
    """

    async def read(self) -> Records:
        """All there are."""

    async def changed(self) -> bool:
        """Whether this process or another changed the records after the last `read`. Spending does
        not count."""

    async def put_group(self, group: Group) -> None:
        """Make it, or replace the one of that name."""

    async def delete_group(self, level: GroupLevel, name: str) -> None:
        """Remove one that nothing belongs to."""

    async def create_key(
        self,
        *,
        parent: Parent | None = None,
        terms: Terms = NO_TERMS,
        label: str = "",
        expires_ms: int | None = None,
    ) -> NewKey:
        """Make a key; it can be read from the result, once."""

    async def rotate_key(self, id: str, *, overlap_ms: int = 0) -> NewKey:
        """Make another secret for a key; the ones there open it for overlap_ms more."""

    async def change_key(
        self, id: str, *, terms: Terms | None = None, label: str | None = None
    ) -> None:
        """Give a key other terms or another label."""

    async def edit_key(self, id: str, edited: Callable[[KeyRecord], KeyRecord]) -> None:
        """Replace a key by what `edited` makes of it, which may raise; nothing comes between."""

    async def block(self, level: Level, name: str, *, blocked: bool = True) -> None:
        """Block or unblock a key, or all below a group."""

    async def expire_key(self, id: str, *, at_ms: int | None) -> None:
        """End a key at a time; None for never."""

    async def delete_key(self, id: str) -> None:
        """Remove it."""

    async def add_spent(self, more: Sequence[SpentMore]) -> None:
        """Keep what was spent; all of it or, with an error, nothing."""

    async def spent(self, *, at_ms: int, of: Collection[str] | None = None) -> list[Spent]:
        """Spending that still counts. of: ids of meters; None for all."""

    async def add_marks(self, marks: Sequence[Mark]) -> None:
        """Keep them until their ends, the newest of each owner; all of them or, with an error,
        none."""

    async def marks(self, ids: Sequence[str], *, at_ms: int) -> frozenset[str]:
        """The subset of the ids that are in the store."""

    async def close(self) -> None:
        """Write what waits and close."""
