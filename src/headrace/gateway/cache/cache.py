"""The exact cache: a request that was answered before gets the same answer, and nobody is asked.

It is asked once a request is known to be right and before anything is held back for it. Identical
requests that come while the first is still answered all go to a provider.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from headrace.gateway.cache.kept import Kept, read, written
from headrace.gateway.cache.key import Around, fields_of, has_state, is_repeatable, key_of
from headrace.gateway.cache.store import CacheStore
from headrace.gateway.cache.tenant import tenant_of
from headrace.gateway.cache.wish import FIELD, wish_of
from headrace.gateway.routing.ask import Ask
from headrace.gateway.routing.router import Router
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.prepared import forwarded
from headrace.gateway.settings.cache import CacheSettings

CacheState = Literal["hit", "miss", "bypass", "store-off"]


@dataclass(kw_only=True, slots=True)
class Visit:
    """One request at the cache. state: "miss" until something is found, "bypass" if the client
    wants nothing from it, "store-off" if the rules do not keep such answers. key: None without
    one to keep by or to find. reads: whether it may be answered from it."""

    state: CacheState
    key: bytes | None = None
    reads: bool = False
    max_age_s: float | None = None
    ttl_s: float = 0.0


class ResponseCache:
    """wall_s: Unix time, by which answers age."""

    def __init__(
        self, settings: CacheSettings, store: CacheStore, *, wall_s: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._store = store
        self._wall_s = wall_s

    def visit(self, incoming: Incoming, ask: Ask, router: Router) -> Visit:
        """What is done for a request. Raises RequestError for a `cache` that cannot be read."""
        routes = [_names(router, name) for name in ask.wanted.models]
        asked = (ask.wanted.models[0], routes[0][0])
        if not any(fnmatchcase(name, glob) for name in asked for glob in self._settings.models):
            return Visit(state="store-off")
        wish = wish_of(incoming.headers, incoming.body.decoded(FIELD))
        if not wish.stores:
            return Visit(state="bypass")
        off = Visit(state="store-off")
        # Where nobody may keep a client's data, the gateway does not either.
        if ask.no_retention or ask.wanted.preferences.zdr:
            return off
        fields = fields_of(incoming.body.body)
        if fields is None or has_state(fields):
            return off
        if not self._settings.all and not is_repeatable(fields):
            return off
        around = Around(
            tenant=tenant_of(incoming.caller, self._settings.scope),
            namespace=wish.namespace,
            dialect=incoming.side.name,
            routes=routes,
            headers=forwarded(incoming),
            rules=(ask.regions, ask.keeps_no_data),
        )
        key = key_of(fields, around)
        if key is None:
            return off
        return Visit(
            state="miss" if wish.reads else "bypass",
            key=key,
            reads=wish.reads,
            max_age_s=wish.max_age_s,
            ttl_s=min(wish.ttl_s or self._settings.ttl_s, self._settings.ttl_s),
        )

    async def find(self, visit: Visit) -> Kept | None:
        """An answer that is young enough."""
        if visit.key is None or not visit.reads:
            return None
        now_s = self._wall_s()
        data = await self._store.get(visit.key, now_s)
        kept = None if data is None else read(data)
        if kept is None:
            return None
        age_s = kept.age_s(now_s)
        # The settings may have changed since it was put into a file.
        if age_s >= self._settings.ttl_s:
            return None
        return kept if visit.max_age_s is None or age_s <= visit.max_age_s else None

    def keep(self, visit: Visit, kept: Kept) -> None:
        """Give it to the same request from now on."""
        data = None if visit.key is None else written(kept)
        if visit.key is not None and data is not None:
            self._store.put(visit.key, data, now_s=kept.at_s, expires_s=kept.at_s + visit.ttl_s)

    def close(self) -> None:
        """Let go of the store; afterwards nothing is found."""
        self._store.close()


def _names(router: Router, model: str) -> tuple[str, ...]:
    """A model and who serves it: what is kept is not given once that has changed."""
    route = router.route(model)
    if route is None:
        return (model,)
    return (route.name, *(one.name for one in route.targets), *route.fallbacks)
