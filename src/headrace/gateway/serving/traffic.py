"""What becomes of one request besides its answer: its side of an A/B test, hedges, its shadow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.gateway.routing.decision import Decision
from headrace.gateway.routing.hedging import Hedging
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.route import Route
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.shadow import Shadow
from headrace.gateway.routing.side_effects import acts_at_provider
from headrace.gateway.routing.variants import Variants
from headrace.gateway.serving.attempt import Opened
from headrace.gateway.serving.dispatch import Dispatch
from headrace.gateway.serving.entry import Entry
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.prepared import Prepared
from headrace.gateway.serving.reply_headers import HEDGED, variant_headers
from headrace.gateway.serving.sides import note_side

if TYPE_CHECKING:
    from headrace.gateway.serving.shadowing import Shadows


class RequestTraffic:
    """assigned: the side of an A/B test that the request was given to, "" without one."""

    __slots__ = ("_shadowed", "_variants", "assigned")

    def __init__(self) -> None:
        self.assigned = ""
        self._variants: Variants | None = None
        self._shadowed: tuple[Shadow, RoutingQuery] | None = None

    def takes_side(self, ask: RoutingQuery, decision: Decision, router: Router) -> RoutingQuery:
        """Of an A/B test; it is decided."""
        if not decision.sides:
            return ask
        if decision.assigned:
            self.assigned = decision.assigned
            route = router.route(decision.sides[0][0])
            self._variants = None if route is None else route.variants
        return ask._replace(sides=decision.sides)

    def goes(self, route: Route, ask: RoutingQuery) -> None:
        """A target will be asked."""
        if route.shadow is not None:
            # A shadow is on nobody's account.
            self._shadowed = route.shadow, ask._replace(no_free=None)

    def headers(self, opened: Opened, dispatch: Dispatch) -> Sequence[tuple[str, str]]:
        """Of its answer."""
        found = [HEDGED] if dispatch.hedge_won else []
        if self.assigned:
            found += variant_headers(self.assigned, opened.candidate.variant)
        return found

    def ended(
        self,
        entry: Entry,
        incoming: Incoming,
        prepared: Prepared,
        shadows: Shadows | None,
        asides: int,
    ) -> None:
        """Its line is written. asides: how many lines it has besides."""
        if self._variants is not None:
            note_side(self._variants, entry, incoming)
        if self._shadowed is not None and shadows is not None:
            from headrace.gateway.serving.shadowing import Told

            shadow, ask = self._shadowed
            shadows.send(shadow, Told(ask, prepared, incoming, entry, asides + 1))


def hedging_of(route: Route | None, incoming: Incoming, now_s: float) -> Hedging | None:
    """None for a model that is not hedged, and for what must not be done twice."""
    hedging = None if route is None else route.hedging
    if hedging is None:
        return None
    hedging.began(now_s)
    return None if acts_at_provider(incoming.body) else hedging


def most_hedges(router: Router, ask: RoutingQuery) -> int:
    """How many may be asked besides the first; of a model made of others, of any of them."""
    route = router.route(ask.wanted.models[0])
    if route is None or not route.stands_for:
        return _most_hedges(route)
    return max(_most_hedges(router.route(one)) for one in router.models_of(route.name))


def _most_hedges(route: Route | None) -> int:
    return 0 if route is None or route.hedging is None else route.hedging.most
