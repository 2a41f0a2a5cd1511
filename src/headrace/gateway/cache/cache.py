"""The exact cache: a request that was answered before gets the same answer from here.

It is looked up once a request is known to be valid and before a budget is held for it. Two further
look-ups follow if they are configured: requests under way (`flights.py`) and questions of the same
meaning (`semantic/`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.tenant import tenant_of
from headrace.gateway.cache.flights import Flights
from headrace.gateway.cache.kept import Kept, read, written
from headrace.gateway.cache.key import Around, fields_of, has_state, is_repeatable, key_of
from headrace.gateway.cache.semantic.cache import LookUp, SemanticCache
from headrace.gateway.cache.semantic.question import Question, question_of
from headrace.gateway.cache.store import CacheStore
from headrace.gateway.cache.wish import FIELD, wish_of
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.side_effects import acts_at_provider
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.prepared import forwarded
from headrace.gateway.settings.cache import CacheSettings

CacheState = Literal["hit", "miss", "bypass", "store-off"]


@dataclass(kw_only=True, slots=True)
class Visit:
    """One request's use of the cache."""

    state: CacheState
    """"miss" until something is found, "bypass" if the client wants nothing from the cache,
    "store-off" if such answers are not kept."""
    key: bytes | None = None
    """None if the answer is neither looked up nor kept."""
    reads: bool = False
    """Whether it may be answered from the cache."""
    max_age_s: float | None = None
    ttl_s: float = 0.0
    question: Question | None = None
    """None if it is not looked up by its meaning."""
    look_up: LookUp | None = None
    """The look-up of the question, once it has begun."""


class Alike(NamedTuple):
    """The answer to a question of the same meaning."""

    kept: Kept
    similarity: float
    """Cosine."""


class ResponseCache:
    """A cache of replies, by request.

    `wall_s` is Unix time, by which answers age. `flights` is None if requests under way do not wait
    for each other; `semantic` is None if questions are not compared by meaning.
    """

    def __init__(
        self,
        settings: CacheSettings,
        store: CacheStore,
        *,
        wall_s: Callable[[], float],
        semantic: SemanticCache | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._wall_s = wall_s
        self.flights = Flights(settings.coalesce_timeout_s) if settings.coalesce else None
        self.semantic = semantic

    def visit(self, incoming: Incoming, ask: RoutingQuery, router: Router) -> Visit:
        """How the cache treats a request. Raises RequestError if its `cache` field is invalid."""
        routes = [_names(router, name) for name in ask.wanted.models]
        asked = (ask.wanted.models[0], routes[0][0])
        if not any(fnmatchcase(name, glob) for name in asked for glob in self._settings.models):
            return Visit(state="store-off")
        wish = wish_of(incoming.headers, incoming.body.decoded(FIELD))
        if not wish.stores:
            return Visit(state="bypass")
        off = Visit(state="store-off")
        # If providers may not keep a client's data, the gateway does not either.
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
            rules=(ask.regions, ask.keeps_no_data, *ask.sides),
        )
        key = key_of(fields, around)
        if key is None:
            return off
        question = None
        if self.semantic is not None and _may_be_embedded(ask, incoming):
            question = question_of(fields, around, self.semantic.settings)
        return Visit(
            state="miss" if wish.reads else "bypass",
            key=key,
            reads=wish.reads,
            max_age_s=wish.max_age_s,
            ttl_s=min(wish.ttl_s or self._settings.ttl_s, self._settings.ttl_s),
            question=question,
        )

    async def find(self, visit: Visit) -> Kept | None:
        """A recent enough answer to the same request."""
        if visit.key is None or not visit.reads:
            return None
        return await self.at(visit.key, visit)

    async def at(self, key: bytes, visit: Visit) -> Kept | None:
        """The answer under a key, if it is recent enough for the request."""
        now_s = self._wall_s()
        data = await self._store.get(key, now_s)
        kept = None if data is None else read(data)
        if kept is None:
            return None
        # The settings may have changed since it was stored.
        if kept.age_s(now_s) >= self._settings.ttl_s:
            return None
        return kept if self.is_young(kept, visit) else None

    def is_young(self, kept: Kept, visit: Visit) -> bool:
        """Whether it is as recent as the client requires."""
        return visit.max_age_s is None or kept.age_s(self._wall_s()) <= visit.max_age_s

    async def find_alike(
        self, visit: Visit, caller: Caller | None, request_id: str
    ) -> Alike | None:
        """The answer to a question of the same meaning; embeds the question."""
        semantic = self.semantic
        if semantic is None or visit.question is None or not visit.reads:
            return None
        look_up = visit.look_up = semantic.begin(visit.question, caller, request_id)
        if look_up is None:
            return None
        near = await semantic.find(look_up, self._wall_s())
        if near is None:
            return None
        kept = await self.at(near.key, visit)
        if kept is None:
            if visit.max_age_s is None:
                semantic.forget(look_up, near.key)
            return None
        return Alike(kept, near.similarity)

    def keep(self, visit: Visit, kept: Kept) -> None:
        """Store an answer for the same request from now on."""
        data = None if visit.key is None else written(kept)
        if visit.key is None or data is None or len(data) > self._settings.max_answer_bytes:
            return
        expires_s = kept.at_s + visit.ttl_s
        self._store.put(visit.key, data, now_s=kept.at_s, expires_s=expires_s)
        if self.semantic is not None and visit.look_up is not None:
            self.semantic.keep(visit.look_up, visit.key, now_s=kept.at_s, expires_s=expires_s)

    def close(self) -> None:
        """Close the store; nothing is found afterwards."""
        self._store.close()
        if self.semantic is not None:
            self.semantic.close()


def _may_be_embedded(ask: RoutingQuery, incoming: Incoming) -> bool:
    """Whether a question may be embedded. It may not if the client restricts who sees its data, as
    the embedder is another provider, nor if the request has side effects at the provider, which
    depend on its exact wording."""
    preferences = ask.wanted.preferences
    if preferences.only or preferences.ignore or preferences.data_collection == "deny":
        return False
    return not acts_at_provider(incoming.body)


def _names(router: Router, model: str) -> tuple[str, ...]:
    """A model and its targets: an answer is not reused once these have changed."""
    route = router.route(model)
    if route is None:
        return (model,)
    return (route.name, *(target.name for target in route.targets), *route.fallbacks)
