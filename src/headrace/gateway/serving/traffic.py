"""What a request causes besides its answer: A/B variants, hedges, shadow copies."""

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
    """The variant, hedges and shadow of one request.

    `assigned` is the A/B variant it was assigned to, "" without one.
    """

    __slots__ = ("_shadowed", "_variants", "assigned")

    def __init__(self) -> None:
        self.assigned = ""
        self._variants: Variants | None = None
        self._shadowed: tuple[Shadow, RoutingQuery] | None = None

    def takes_side(self, ask: RoutingQuery, decision: Decision, router: Router) -> RoutingQuery:
        """Record the A/B variant that the decision assigned."""
        if not decision.sides:
            return ask
        if decision.assigned:
            self.assigned = decision.assigned
            route = router.route(decision.sides[0][0])
            self._variants = None if route is None else route.variants
        return ask._replace(sides=decision.sides)

    def goes(self, route: Route, ask: RoutingQuery) -> None:
        """A target is about to be tried."""
        if route.shadow is not None:
            # A shadow is charged to no account.
            self._shadowed = route.shadow, ask._replace(no_free=None)

    def headers(self, opened: Opened, dispatch: Dispatch) -> Sequence[tuple[str, str]]:
        """The headers of its answer."""
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
        """Its ledger line is written; `asides` is the number of lines beside it."""
        if self._variants is not None:
            note_side(self._variants, entry, incoming)
        if self._shadowed is not None and shadows is not None:
            from headrace.gateway.serving.shadowing import Told

            shadow, ask = self._shadowed
            shadows.send(shadow, Told(ask, prepared, incoming, entry, asides + 1))


def hedging_of(route: Route | None, incoming: Incoming, now_s: float) -> Hedging | None:
    """None for a model without hedging, and for requests that must not be sent twice."""
    hedging = None if route is None else route.hedging
    if hedging is None:
        return None
    hedging.began(now_s)
    return None if acts_at_provider(incoming.body) else hedging


def most_hedges(router: Router, ask: RoutingQuery) -> int:
    """How many hedges may join the first target; for a composed model, at any of its models."""
    route = router.route(ask.wanted.models[0])
    if route is None or not route.stands_for:
        return _most_hedges(route)
    return max(_most_hedges(router.route(name)) for name in router.models_of(route.name))


def _most_hedges(route: Route | None) -> int:
    return 0 if route is None or route.hedging is None else route.hedging.most
