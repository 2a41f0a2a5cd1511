"""Chooses the targets for a request, in order. Sends nothing and changes nothing.

For each model, targets that cannot serve the request are left out with the reason. The rest are
sorted by the client's `order`, else by the configuration's; among equals by the client's `sort`,
else by the model's strategy; among those the session's last target comes first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from headrace.config.load import nearest
from headrace.errors import RequestError, shown
from headrace.gateway.routing.context import surely_fitting_first
from headrace.gateway.routing.decision import Candidate, Decision, LeftOut
from headrace.gateway.routing.eligible import cannot_serve, is_named, is_preferred, not_now
from headrace.gateway.routing.model_name import plain_name, plain_names
from headrace.gateway.routing.preferences import FREE, NONE, RouteWord, Sort, Wanted
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.route import Route
from headrace.gateway.routing.sticky import Sticky
from headrace.gateway.routing.strategies import ORDERS, Scored, of_session
from headrace.gateway.routing.told_responses import ToldResponses
from headrace.gateway.routing.turns import Turns
from headrace.gateway.routing.variants import Side, Variants
from headrace.gateway.settings.cache import CacheScope
from headrace.gateway.settings.model import Strategy
from headrace.gateway.targets.target import Target

_SORTS: dict[Sort, Strategy] = {
    "price": "price", "throughput": "throughput", "latency": "latency",
}  # fmt: skip
_ROUTES: dict[RouteWord, Strategy] = {"fallback": "ordered", "load-balance": "weighted"}

_LATEST = ":latest"
# A model's fallbacks have fallbacks; a cycle ends here at the latest.
_MOST_MODELS = 16


class Router:
    """A router: chooses targets for requests.

    `routes` are by name, `aliases` are other names. `unknown` makes the route of a
    `provider/model`, None if such names are not allowed. `source` is the source of randomness.
    """

    def __init__(
        self,
        routes: Mapping[str, Route],
        aliases: Mapping[str, str],
        sticky: Sticky,
        source: random.Random,
        *,
        unknown: Callable[[str], Route | None] = lambda name: None,
        turns: Turns | None = None,
        told_responses: ToldResponses | None = None,
        prompt_cache_scope: CacheScope = "all",
    ) -> None:
        """`turns` is where requests wait for busy targets, None if they do not. `told_responses`
        records which target stores which response; None makes a new record. `prompt_cache_scope`
        says whose requests share what engines have cached."""
        self.prompt_cache_scope: CacheScope = prompt_cache_scope
        self.turns = turns
        self.told_responses = ToldResponses() if told_responses is None else told_responses
        self.routes = routes
        self.aliases = aliases
        self._sticky = sticky
        self._source = source
        self._unknown = unknown
        self.has_variants = any(route.variants is not None for route in routes.values())
        self.has_prefixes = any(route.sticky == "prefix" for route in routes.values())
        self.has_engines = any(route.engine_order is not None for route in routes.values())
        # The configured names, resolved once.
        own = {name: self.own_name(name) for name in (*routes, *aliases)}
        self._of_name = {
            name: routes[own_name] for name, own_name in own.items() if own_name in routes
        }
        self.has_followers = any(
            route.context_fallbacks or route.policy_fallbacks for route in routes.values()
        )
        self._with_target: dict[str, tuple[str, ...]] = {}
        for route in routes.values():
            for target in () if route.stands_for else route.targets:
                name = plain_name(target.name)
                self._with_target[name] = (*self._with_target.get(name, ()), route.name)

    def route(self, name: str) -> Route | None:
        """The route of a model's name or alias."""
        route = self._of_name.get(name)
        if route is not None:
            return route
        return self.routes.get(self.own_name(name)) or self._unknown(name)

    def own_name(self, name: str) -> str:
        """The model's name for an alias; any other name as it is. Ollama's clients append :latest
        to names without a tag."""
        own = self.aliases.get(name, name)
        if not own.endswith(_LATEST) or own in self.routes:
            return own
        plain = own.removesuffix(_LATEST)
        plain = self.aliases.get(plain, plain)
        return plain if plain in self.routes else own

    def models_of(self, name: str) -> list[str]:
        """The model of a name or alias; for a composed model, its models; none if unknown."""
        route = self.route(name)
        return [] if route is None else self._plain(route)

    def with_target(self, name: str) -> tuple[str, ...]:
        """The configured models that `provider/model` may mean, however it is written, with a
        variant or without; none for a model's name or alias."""
        if name in self.routes or name in self.aliases:
            return ()
        of = self._with_target
        return next((of[plain] for plain in plain_names(name) if plain in of), ())

    def could_ask(self, models: Iterable[str], ask: RoutingQuery) -> list[Candidate]:
        """Every target that `fallbacks` may name, now or once it has recovered, in no order."""
        known = tuple(model for model in models if self.route(model) is not None)
        return [
            Candidate(target, name, 0.0, ())
            for name in self._models(known, ask)
            if (route := self.route(name)) is not None
            for target in route.targets
            if cannot_serve(target, ask) is None
        ]

    def decide(self, ask: RoutingQuery, now_s: float) -> Decision:
        """Choose the targets of a request. If the context of all is certainly too small, the
        models' own `context_fallbacks` are used. Raises RequestError (code model_not_found) for
        unknown names."""
        decision = self._decide(ask, now_s)
        if decision.candidates or not any(skipped.too_long for skipped in decision.left_out):
            return decision
        models = dict.fromkeys(skipped.model for skipped in decision.left_out if skipped.too_long)
        names = [name for model in models for name in self._context_fallbacks(model)]
        others = self.fallbacks(names, ask, now_s)
        return others._replace(left_out=decision.left_out + others.left_out)

    def _context_fallbacks(self, model: str) -> tuple[str, ...]:
        route = self.route(model)
        return () if route is None else route.context_fallbacks

    def _decide(self, ask: RoutingQuery, now_s: float) -> Decision:
        candidates: list[Candidate] = []
        left_out: list[LeftOut] = []
        sides: list[tuple[str, str]] = []
        asked = ask.wanted.models
        names = self._models(self._free(asked) if ask.wanted.free else asked, ask)
        for name in names:
            route = self.route(name)
            assert route is not None
            if route.variants is None:
                found, without = self._of_targets(route, route.targets, ask, now_s)
            else:
                who = ask.who if name == names[0] else ask.who._replace(chosen=None)
                order = route.variants.order(who)
                sides.append((name, order[0].variant.name))
                found, without = self._of_sides(route, order, ask, now_s)
                left_out += _taken_out(route, route.variants, found)
            candidates += found
            left_out += without
        assigned = sides[0][1] if sides and sides[0][0] == names[0] else ""
        if ask.wanted.sorts_all and len(names) > 1:
            candidates = self._sorted_together(candidates, ask, now_s)
        candidates = _continued_first(candidates, ask)
        return Decision(tuple(candidates), tuple(left_out), assigned, tuple(sides))

    def _sorted_together(
        self, candidates: list[Candidate], ask: RoutingQuery, now_s: float
    ) -> list[Candidate]:
        """The candidates of all models by the client's sort key; ties keep the models' order."""
        strategy = _strategy_of(ask.wanted)
        assert strategy is not None
        targets = list(dict.fromkeys(candidate.target for candidate in candidates))
        scored = ORDERS[strategy](targets, ask, self._source, now_s)
        places = {entry.target: place for place, entry in enumerate(scored)}
        return sorted(candidates, key=lambda candidate: places[candidate.target])

    def fallbacks(self, models: Iterable[str], ask: RoutingQuery, now_s: float) -> Decision:
        """The targets that are tried after all others failed; unknown names are skipped."""
        known = tuple(model for model in models if self.route(model) is not None)
        if not known:
            return Decision((), ())
        wanted = ask.wanted
        return self._decide(
            ask._replace(
                wanted=msgspec.structs.replace(wanted, models=known),
                who=ask.who._replace(chosen=None),
            ),
            now_s,
        )

    def _free(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """The names, with the free variant instead of a name that is not configured if its
        provider sells one under its own name (OpenRouter)."""
        found = []
        for name in asked:
            if name not in self.routes and name not in self.aliases:
                variant = self._unknown(f"{name}:{FREE}")
                if variant is not None and variant.targets[0].is_free:
                    name = variant.name
            found.append(name)
        return tuple(found)

    def _models(self, asked: tuple[str, ...], ask: RoutingQuery) -> list[str]:
        """The requested models, then their fallbacks."""
        if len(asked) == 1:
            only = self.route(asked[0])
            if only is not None and not (only.fallbacks or only.stands_for):
                return [only.name]  # as for most requests
        found: list[str] = []
        for name in asked:
            route = self.route(name)
            if route is None:
                known = [*self.routes, *self.aliases] if ask.hears_names else []
                raise RequestError(
                    f"model {shown(name)} is not served here"
                    f"{nearest(name, known) or '; GET /v1/models lists the models'}",
                    param="model",
                    code="model_not_found",
                )
            found += [plain for plain in self._plain(route) if plain not in found]
        for name in dict.fromkeys((*asked, *found)):
            route = self.route(name)
            for fallback in () if route is None else route.fallbacks:
                other = self.route(fallback)
                for plain in () if other is None else self._plain(other):
                    if plain not in found and len(found) < _MOST_MODELS:
                        found.append(plain)
        return found

    def _plain(self, route: Route) -> list[str]:
        """Its name; for a composed model, those of its models, of which there are no cycles."""
        if not route.stands_for:
            return [route.name]
        inner = [self.route(inner_route) for inner_route in route.stands_for]
        return [
            name
            for inner_route in inner
            if inner_route is not None
            for name in self._plain(inner_route)
        ]

    def _of_sides(
        self, route: Route, sides: Sequence[Side], ask: RoutingQuery, now_s: float
    ) -> tuple[list[Candidate], list[LeftOut]]:
        """The targets of a variant, then those of the variants that stand in for it."""
        found: list[Candidate] = []
        left_out: list[LeftOut] = []
        for side in sides:
            seen = {candidate.target.name for candidate in found} | {
                candidate.target for candidate in left_out
            }
            fresh = [target for target in side.variant.targets if target.name not in seen]
            candidates, without = self._of_targets(route, fresh, ask, now_s)
            left_out += without
            if found and not ask.wanted.preferences.allow_fallbacks:
                left_out += [
                    LeftOut(candidate.target.name, route.name, "allow_fallbacks is false")
                    for candidate in candidates
                ]
                continue
            found += [
                candidate._replace(
                    variant=side.variant.name, reasons=(side.reason, *candidate.reasons)
                )
                for candidate in candidates
            ]
        return found, left_out

    def _of_targets(
        self, route: Route, targets: Sequence[Target], ask: RoutingQuery, now_s: float
    ) -> tuple[list[Candidate], list[LeftOut]]:
        usable: list[Target] = []
        left_out: list[LeftOut] = []
        waits = self.turns is not None
        for target in targets:
            reason = cannot_serve(target, ask) or not_now(target, now_s, waits=waits)
            if reason is None:
                usable.append(target)
            else:
                left_out.append(LeftOut(target.name, route.name, *reason))
        preferences = ask.wanted.preferences
        chosen = _strategy_of(ask.wanted)
        strategy = chosen or route.strategy
        kept = None
        if key := _sticky_key(route, ask):
            kept = self._sticky.target(route.name, key, now_s)
        own = route.engine_order
        found: list[Candidate] = []
        for group, why in _groups(usable, preferences.order):
            order = ORDERS[strategy] if chosen or own is None else own
            scored = order(group, ask, self._source, now_s)
            if key and kept is None and strategy == "weighted" and not chosen:
                scored = of_session(group, key)
            if preferences is not NONE:
                scored.sort(key=lambda one: not is_preferred(one.target, preferences))
            if kept is not None and not chosen:
                scored.sort(key=lambda one: one.target.name != kept)
            found += [
                _candidate(scored_target, route, why, strategy, kept) for scored_target in scored
            ]
        found = _continued_first(surely_fitting_first(found, ask), ask)
        if not preferences.allow_fallbacks and preferences.order:
            allowed = [entry for entry in found if is_named(entry.target, preferences.order)]
            why = "allow_fallbacks is false and it is not in provider.order"
            others = [entry for entry in found if not is_named(entry.target, preferences.order)]
            left_out += [LeftOut(entry.target.name, route.name, why) for entry in others]
            found = allowed
        elif not preferences.allow_fallbacks:
            why = "allow_fallbacks is false"
            left_out += [LeftOut(entry.target.name, route.name, why) for entry in found[1:]]
            found = found[:1]
        return found, left_out

    def refuses(self, target: Target, ask: RoutingQuery, now_s: float) -> str | None:
        """Why a target may not or cannot be sent a request now; None if it may."""
        reason = cannot_serve(target, ask) or not_now(target, now_s)
        return None if reason is None else reason.said

    def served(self, route: str, ask: RoutingQuery, target: Target, now_s: float) -> None:
        """Keep the session, or prompts that begin alike, with the target that served it."""
        known = self.routes.get(route)
        if known is not None and known.engine_order is not None:
            known.engine_order.served(ask, target)
        if known is not None and (key := _sticky_key(known, ask)):
            self._sticky.had(route, key, target.name, now_s)


def _strategy_of(wanted: Wanted) -> Strategy | None:
    """The strategy that the client chooses instead of the model's."""
    if wanted.sort_by is not None:
        return _SORTS[wanted.sort_by]
    return None if wanted.route is None else _ROUTES.get(wanted.route)


def _taken_out(route: Route, variants: Variants, found: list[Candidate]) -> list[LeftOut]:
    reached = {candidate.target.name for candidate in found}
    return [
        LeftOut(target.name, route.name, f"variant {side.name} was taken out: it failed too often")
        for side in variants.sides
        if side.name in variants.out
        for target in side.targets
        if target.name not in reached
    ]


def _sticky_key(route: Route, ask: RoutingQuery) -> str | int | None:
    if route.sticky == "session":
        return ask.session
    return ask.prefix if route.sticky == "prefix" else None


def _candidate(
    scored: Scored, route: Route, why: str, strategy: Strategy, kept: str | None
) -> Candidate:
    reasons = [f"{strategy}: {scored.reason}"]
    if why:
        reasons.insert(0, why)
    if scored.target.name == kept:
        reasons.insert(0, "served the same session last")
    return Candidate(scored.target, route.name, scored.score, tuple(reasons))


def _continued_first(found: list[Candidate], ask: RoutingQuery) -> list[Candidate]:
    """The target that stores the continued response comes first: no other knows it."""
    if (continued := ask.continued) is None:
        return found
    return sorted(found, key=lambda one: one.target.name != continued.target)


def _groups(targets: list[Target], order: tuple[str, ...]) -> list[tuple[list[Target], str]]:
    """Groups of targets that only chance distinguishes, the first group first."""
    if not order and len({target.order for target in targets}) == 1:
        level = targets[0].order
        return [(targets, f"order {level}" if level else "")]
    left = list(targets)
    groups: list[tuple[list[Target], str]] = []
    for number, name in enumerate(order, 1):
        group = [target for target in left if is_named(target, (name,))]
        left = [target for target in left if target not in group]
        if group:
            groups.append((group, f"number {number} of provider.order"))
    for level in sorted({target.order for target in left}):
        group = [target for target in left if target.order == level]
        groups.append((group, f"order {level}" if level else ""))
    return groups
