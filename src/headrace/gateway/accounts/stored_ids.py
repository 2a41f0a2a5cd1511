"""The owner, a key, of each object stored at a provider: no other key may use it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Sequence

from headrace.errors import HeadraceError
from headrace.gateway.accounts.counters import Counters, Known, Mark
from headrace.gateway.accounts.errors import StoresDownError
from headrace.gateway.accounts.remembered import Remembered
from headrace.gateway.accounts.store import AccountStore

# As long as OpenAI stores a response.
_KEPT_MS = 30 * 86_400_000
_RETRY_AFTER_S = 1.0
# No key's id: what is told to anybody is also told to this one, where somebody asks for it.
_ANYBODY = ""

_logger = logging.getLogger(__name__)


class StoredIds:
    """Owners of objects stored at providers, kept as hashes where limits are counted and, after the
    next `save`, in the store.

    now_ms: milliseconds since 1970. store: None if there is none, or another process writes it.
    """

    def __init__(
        self, counters: Counters, now_ms: Callable[[], int], store: AccountStore | None = None
    ) -> None:
        self._counters = counters
        self._now_ms = now_ms
        self._store = store
        self._unsaved = Remembered()
        self._read_problem: str | None = None
        self._save_problem: str | None = None

    @property
    def problem(self) -> str | None:
        """The last problem of the store, as far as known."""
        return self._save_problem or self._read_problem

    async def tell(
        self, key_id: str, ids: Collection[str], *, with_owner: Collection[str] = ()
    ) -> None:
        """Record the ids that are sent to a key. with_owner: further ids, for `of_others`."""
        at_ms = self._now_ms()
        until_ms = at_ms + _KEPT_MS
        marks = [_mark(key_id, id, until_ms) for id in (*ids, *with_owner)]
        marks += [_mark(_ANYBODY, id, until_ms) for id in with_owner]
        await self.remember(marks, at_ms=at_ms)

    async def told(self, key_id: str, ids: Collection[str]) -> set[str]:
        """The subset of the ids that belong to the key. Raises StoresDownError if one is unknown
        and a store that may know it cannot be reached."""
        marks = {_mark(key_id, id, 0).id: id for id in ids}
        known = await self.remembers(_owner(key_id), tuple(marks), at_ms=self._now_ms())
        if not known.is_sure and len(known.ids) < len(marks):
            raise StoresDownError(
                "whether this key may use ids of objects stored at the provider cannot be "
                "looked up now; try again soon",
                retry_after_s=_RETRY_AFTER_S,
            )
        return {marks[mark_id] for mark_id in known.ids}

    async def of_others(self, key_id: str, ids: Collection[str]) -> set[str]:
        """The subset of the ids that belong to other keys and not to this one. Raises as `told`."""
        left = set(ids) - await self.told(key_id, ids)
        return await self.told(_ANYBODY, left) if left else left

    async def remember(self, marks: Sequence[Mark], *, at_ms: int) -> None:
        """As in Counters; does not wait for the store."""
        await self._counters.remember(marks, at_ms=at_ms)
        if self._store is not None:
            self._unsaved.add(marks)

    async def remembers(self, owner: str, ids: Sequence[str], *, at_ms: int) -> Known:
        """As in Counters; marks that they do not know are looked up in the store."""
        known, is_sure = await self._counters.remembers(owner, ids, at_ms=at_ms)
        if self._store is None or len(known) == len(ids):
            return Known(known, is_sure)
        known |= self._unsaved.known(owner, ids, at_ms)
        left = [id for id in ids if id not in known]
        stored = await self._read(self._store, left, at_ms)
        if stored is None:
            return Known(known, is_sure=False)
        return Known(known | stored, is_sure)

    async def save(self) -> None:
        """Write new ids to the store; what cannot be written waits for the next time."""
        if self._store is None:
            return
        if self._read_problem is not None:
            # Nobody may ask again for long, and a fault that is over must not be told on.
            await self._read(self._store, ("",), self._now_ms())
        some = self._unsaved.oldest(len(self._unsaved))
        if not some:
            return
        try:
            await self._store.add_marks(some)
        except HeadraceError as error:
            if self._save_problem is None:
                _logger.error("ids of objects stored for keys cannot be written: %s", error)
            self._save_problem = str(error)
            return
        self._unsaved.remove(some)
        self._save_problem = None

    async def _read(
        self, store: AccountStore, ids: Sequence[str], at_ms: int
    ) -> frozenset[str] | None:
        """The subset that the store has; None if it cannot be read."""
        try:
            stored = await store.marks(ids, at_ms=at_ms)
        except HeadraceError as error:
            if self._read_problem is None:
                _logger.error("ids of objects stored for keys cannot be read: %s", error)
            self._read_problem = str(error)
            return None
        self._read_problem = None
        return stored


def _owner(key_id: str) -> str:
    return _hashed(key_id, 8)


def _mark(key_id: str, id: str, until_ms: int) -> Mark:
    return Mark(_owner(key_id), _hashed(f"{len(key_id)}|{key_id}|{id}", 16), until_ms)


def _hashed(text: str, size_bytes: int) -> str:
    whole = text.encode(errors="surrogatepass")
    return hashlib.blake2b(whole, digest_size=size_bytes).hexdigest()
