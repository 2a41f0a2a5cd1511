"""A request at the response cache: look-up, the reply made from it, and what is stored after."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from headrace.errors import RequestError
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import Demand
from headrace.gateway.accounts.reservation import Reservation
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.router import Router
from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.demanded import with_names
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.incoming import Incoming, Sink
from headrace.gateway.serving.named import Names
from headrace.gateway.serving.prepared import Prepared
from headrace.gateway.serving.reply_headers import (
    PREFIX,
    cost_header,
    dropped_headers,
    told_headers,
    variant_headers,
    visible,
)
from headrace.gateway.serving.tally import Tally
from headrace.protocol.neutral.collect import replayed

if TYPE_CHECKING:
    from headrace.gateway.cache.cache import ResponseCache, Visit
    from headrace.gateway.cache.flights import Flight
    from headrace.gateway.cache.kept import Kept

Header = tuple[str, str]


class AtCache:
    """One request's use of the response cache.

    `kept` is the cached answer to send, None while there is none. `waited_ns` is the time spent
    waiting for other requests' answers and for vectors. With `cache` None the cache is off:
    nothing is found and nothing is stored.
    """

    def __init__(
        self,
        cache: ResponseCache | None,
        incoming: Incoming,
        prepared: Prepared,
        clock_ns: Callable[[], int],
    ) -> None:
        self._clock_ns = clock_ns
        self.waited_ns = 0
        self._cache = cache
        self._incoming = incoming
        self._prepared = prepared
        self._visit: Visit | None = None
        self._flight: Flight | None = None
        self._found = "hit"
        self._similarity: float | None = None
        self.kept: Kept | None = None

    async def find(self, ask: RoutingQuery, router: Router) -> bool:
        """Whether there is an answer to the same request. Raises RequestError if `cache` in the
        body is invalid."""
        if self._cache is None:
            return False
        visit = self._visit = self._cache.visit(self._incoming, ask, router)
        return self._gives(await self._cache.find(visit), "hit")

    @property
    def looks_further(self) -> bool:
        """Whether `find_further` may find anything."""
        cache, visit = self._cache, self._visit
        if cache is None or visit is None or visit.key is None or not visit.reads:
            return False
        return cache.flights is not None or visit.question is not None

    async def find_further(self) -> bool:
        """Whether there is an answer of a request under way, or to a question of the same meaning.

        It may wait for either, so budgets must be held before. If there is none, other requests may
        wait for this one until `keep` or `leave`.
        """
        began_ns = self._clock_ns()
        try:
            return await self._find_further()
        finally:
            self.waited_ns = self._clock_ns() - began_ns

    async def _find_further(self) -> bool:
        cache, visit = self._cache, self._visit
        assert cache is not None
        assert visit is not None
        assert visit.key is not None
        if cache.flights is not None:
            from headrace.gateway.cache.flights import Flight

            joined = await cache.flights.join(visit.key)
            if isinstance(joined, Flight):
                self._flight = joined
            elif joined is not None and cache.is_young(joined, visit):
                return self._gives(joined, "coalesced")
        alike = await cache.find_alike(visit, self._incoming.caller, self._incoming.id)
        if alike is None or not self._gives(alike.kept, "semantic"):
            return False
        self._similarity = alike.similarity
        self._land(alike.kept)
        return True

    def leave(self) -> None:
        """The request is over: requests that wait for its answer go on without it."""
        self._land(None)

    async def hold(
        self, accounts: Accounts | None, ask: RoutingQuery, router: Router
    ) -> Reservation | None:
        """Count an answer from the cache against limits on requests; budgets and limits on tokens
        and on concurrent requests do not apply."""
        caller = self._incoming.caller
        if accounts is None or caller is None:
            return None
        rates = tuple(meter for meter in caller.meters if meter.limit_name == "rpm")
        caller = msgspec.structs.replace(caller, meters=rates)
        assert self.kept is not None
        asked = ask.wanted.models
        demand = Demand(model=asked[0], most_cost_nusd=0)
        demand = with_names(demand, router, caller, asked[:1], (self.kept.model,))
        return await accounts.reserve(caller, demand)

    async def answer(
        self,
        sink: Sink,
        now_s: float,
        overhead_us: int,
        variant: str = "",
        dropped: tuple[str, ...] = (),
    ) -> None:
        """Send the cached answer, a stream in one piece; `variant` is its A/B variant, `dropped`
        what of it the client's dialect has no form for."""
        kept, incoming = self.kept, self._incoming
        assert kept is not None
        side, call = incoming.side, self._prepared.call
        model = kept.target.partition("/")[2]
        reply = Names(model, incoming.id, int(kept.at_s)).reply(kept.reply)
        headers = [
            *told_headers(incoming.id, None, 0, overhead_us, kept.ignored),
            (PREFIX + "provider", visible(kept.provider)),
            (PREFIX + "target", visible(kept.target)),
            (PREFIX + "model", visible(kept.model)),
            (PREFIX + "cache", self._found),
            ("age", str(int(kept.age_s(now_s)))),
            cost_header(0),
            *dropped_headers(dropped),
        ]
        if variant:
            headers += variant_headers(variant, variant)
        if self._similarity is not None:
            headers.append((PREFIX + "cache-similarity", f"{self._similarity:.4f}"))
        if incoming.stream:
            writer = side.stream_writer(call)
            body = b"".join(writer.write(event) for event in replayed(reply))
            kind = side.stream_type()
            headers += [("cache-control", "no-cache"), ("x-accel-buffering", "no")]
        else:
            body = side.write_reply(reply, call)
            kind = "application/json"
            headers.append(("content-length", str(len(body))))
        await sink.start(200, [("content-type", kind), *headers])
        await sink.write(body)
        await sink.end()

    def headers(self) -> list[Header]:
        """Headers of an answer that does not come from the cache."""
        return [(PREFIX + "cache", "store-off" if self._visit is None else self._visit.state)]

    def entry(self, entry: Entry) -> Entry:
        """The ledger line of an answer from the cache, with the target that first gave it."""
        kept = self.kept
        assert kept is not None
        return msgspec.structs.replace(
            entry, cache=self._found, target=kept.target, provider=kept.provider
        )

    def tally(self, input_tokens: int, opened: Opened) -> Tally:
        """A tally, which also records the reply where it is to be cached."""
        if self._visit is None or self._visit.key is None:
            return Tally(input_tokens)
        from headrace.gateway.cache.recording import RecordingTally

        return RecordingTally(input_tokens, opened.replies.name)

    def keep(self, opened: Opened, tally: Tally, now_s: float) -> None:
        """Store an answer that reached the client whole, and give it to the requests that wait."""
        if self._cache is None or self._visit is None:
            return
        from headrace.gateway.cache.kept import Kept
        from headrace.gateway.cache.recording import RecordingTally

        reply = tally.reply if isinstance(tally, RecordingTally) else None
        if reply is None:
            return
        target = opened.candidate.target
        kept = Kept(
            reply=reply,
            at_s=now_s,
            model=opened.candidate.model,
            target=target.name,
            provider=target.provider.name,
            ignored=opened.ready.losses.all,
        )
        self._land(kept)
        self._cache.keep(self._visit, kept)

    def _gives(self, kept: Kept | None, found: str) -> bool:
        if kept is None:
            return False
        try:
            _ = self._prepared.call
        except RequestError:
            return False  # as a pass-through it may be served, but not from the cache
        self.kept, self._found = kept, found
        return True

    def _land(self, kept: Kept | None) -> None:
        if self._flight is not None:
            self._flight.land(kept)
