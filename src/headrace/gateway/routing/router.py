"""From what a request asks for to who is asked, in order. Sends nothing and changes nothing.

The order of a model's targets: those that cannot serve it are left out with the reason; the rest by
the client's `order`, else by the file's `order`; among equals by the client's `sort`, else by the
model's strategy; the target the session had last goes first among them. Then the next model.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from headrace.config.load import nearest
from headrace.errors import RequestError, shown
from headrace.gateway.routing.ask import Ask
from headrace.gateway.routing.context import surely_fitting_first, surely_too_long
from headrace.gateway.routing.decision import Candidate, Decision, LeftOut
from headrace.gateway.routing.preferences import FREE, NONE, SUFFIXES, Preferences, Sort
from headrace.gateway.routing.route import Route
from headrace.gateway.routing.sticky import Sticky
from headrace.gateway.routing.strategies import ORDERS, Scored, expected_nusd, of_session
from headrace.gateway.routing.turns import Turns
from headrace.gateway.routing.variants import Side, Variants
from headrace.gateway.settings.model import Strategy
from headrace.gateway.targets.target import NUSD_PER_USD, Target

_SORTS: dict[Sort, Strategy] = {
    "price": "price", "throughput": "throughput", "latency": "latency",
}  # fmt: skip

# A model's fallbacks have fallbacks; a circle ends here at the latest.
_MOST_MODELS = 16
# Nobody knows when a person puts a target back; clients are told to look again after so long.
_TAKEN_OUT_S = 30.0


class Router:
    """routes: by name. aliases: other names. unknown: makes the route of `provider/model`, None
    where such names reach nobody. source: of chance."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        aliases: Mapping[str, str],
        sticky: Sticky,
        source: random.Random,
        *,
        unknown: Callable[[str], Route | None] = lambda name: None,
        turns: Turns | None = None,
    ) -> None:
        """turns: where requests wait for a busy target; None: they do not."""
        self.turns = turns
        self.routes = routes
        self.aliases = aliases
        self._sticky = sticky
        self._source = source
        self._unknown = unknown
        self.has_variants = any(one.variants is not None for one in routes.values())
        self.has_prefixes = any(one.sticky == "prefix" for one in routes.values())
        self.has_engines = any(one.engine_order is not None for one in routes.values())
        self._with_target: dict[str, tuple[str, ...]] = {}
        for one in routes.values():
            for target in () if one.stands_for else one.targets:
                name = target.name.casefold()
                self._with_target[name] = (*self._with_target.get(name, ()), one.name)

    def route(self, name: str) -> Route | None:
        """Of a model's name or alias."""
        return self.routes.get(self.aliases.get(name, name)) or self._unknown(name)

    def own_name(self, name: str) -> str:
        """Of an alias, the model's; any other name as it is."""
        return self.aliases.get(name, name)

    def models_of(self, name: str) -> list[str]:
        """The model of a name or alias; of one made of others, those; none for unknown names."""
        route = self.route(name)
        return [] if route is None else self._plain(route)

    def with_target(self, name: str) -> tuple[str, ...]:
        """The models of the file that have `provider/model`; none for a model's name or alias."""
        if name in self.routes or name in self.aliases:
            return ()
        while (rest := name.rpartition(":"))[2] in SUFFIXES:
            name = rest[0]
        return self._with_target.get(name.casefold(), ())

    def could_ask(self, models: Iterable[str], ask: Ask) -> list[Candidate]:
        """Every target that `fallbacks` may name, now or when others are well, in no order."""
        known = tuple(one for one in models if self.route(one) is not None)
        return [
            Candidate(target, name, 0.0, ())
            for name in self._models(known)
            if (route := self.route(name)) is not None
            for target in route.targets
            if _cannot_serve(target, ask) is None
        ]

    def decide(self, ask: Ask, now_s: float) -> Decision:
        """Raises RequestError (code model_not_found) for names that nobody has."""
        candidates: list[Candidate] = []
        left_out: list[LeftOut] = []
        sides: list[tuple[str, str]] = []
        asked = ask.wanted.models
        names = self._models(self._free(asked) if ask.wanted.free else asked)
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
        return Decision(tuple(candidates), tuple(left_out), assigned, tuple(sides))

    def fallbacks(self, models: Iterable[str], ask: Ask, now_s: float) -> Decision:
        """Who is asked in place of all that failed; names nobody has are passed over."""
        known = tuple(one for one in models if self.route(one) is not None)
        if not known:
            return Decision((), ())
        wanted = ask.wanted
        return self.decide(
            ask._replace(
                wanted=msgspec.structs.replace(wanted, models=known),
                who=ask.who._replace(chosen=None),
            ),
            now_s,
        )

    def _free(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        """With the free variant in place of a name that no model of the file has, where its
        provider sells one under a name of its own (OpenRouter)."""
        found = []
        for name in asked:
            if name not in self.routes and name not in self.aliases:
                variant = self._unknown(f"{name}:{FREE}")
                if variant is not None and variant.targets[0].is_free:
                    name = variant.name
            found.append(name)
        return tuple(found)

    def _models(self, asked: tuple[str, ...]) -> list[str]:
        """What is asked for, and then its fallbacks."""
        found: list[str] = []
        for name in asked:
            route = self.route(name)
            if route is None:
                known = [*self.routes, *self.aliases]
                raise RequestError(
                    f"model {shown(name)} is not served here{nearest(name, known)}; "
                    "GET /v1/models lists what is",
                    param="model",
                    code="model_not_found",
                )
            found += [one for one in self._plain(route) if one not in found]
        for name in dict.fromkeys((*asked, *found)):
            route = self.route(name)
            for one in () if route is None else route.fallbacks:
                other = self.route(one)
                for plain in () if other is None else self._plain(other):
                    if plain not in found and len(found) < _MOST_MODELS:
                        found.append(plain)
        return found

    def _plain(self, route: Route) -> list[str]:
        """Its name; of a model made of others, theirs. The file has no circles of them."""
        if not route.stands_for:
            return [route.name]
        inner = [self.route(one) for one in route.stands_for]
        return [name for one in inner if one is not None for name in self._plain(one)]

    def _of_sides(
        self, route: Route, sides: Sequence[Side], ask: Ask, now_s: float
    ) -> tuple[list[Candidate], list[LeftOut]]:
        """Of a model with variants: a side's targets, and then those that stand in for it."""
        found: list[Candidate] = []
        left_out: list[LeftOut] = []
        for side in sides:
            seen = {one.target.name for one in found} | {one.target for one in left_out}
            fresh = [one for one in side.variant.targets if one.name not in seen]
            candidates, without = self._of_targets(route, fresh, ask, now_s)
            left_out += without
            if found and not ask.wanted.preferences.allow_fallbacks:
                left_out += [
                    LeftOut(one.target.name, route.name, "allow_fallbacks is false")
                    for one in candidates
                ]
                continue
            found += [
                one._replace(variant=side.variant.name, reasons=(side.reason, *one.reasons))
                for one in candidates
            ]
        return found, left_out

    def _of_targets(
        self, route: Route, targets: Sequence[Target], ask: Ask, now_s: float
    ) -> tuple[list[Candidate], list[LeftOut]]:
        usable: list[Target] = []
        left_out: list[LeftOut] = []
        for target in targets:
            waits = self.turns is not None
            reason = _cannot_serve(target, ask) or _not_now(target, now_s, waits=waits)
            if reason is None:
                usable.append(target)
            else:
                said, for_s = reason
                left_out.append(LeftOut(target.name, route.name, said, for_s))
        preferences = ask.wanted.preferences
        sort = preferences.sort_by or ask.wanted.sort
        strategy = _SORTS[sort] if sort else route.strategy
        kept = None
        if key := _sticky_key(route, ask):
            kept = self._sticky.target(route.name, key, now_s)
        own = route.engine_order
        found: list[Candidate] = []
        for group, why in _groups(usable, preferences.order):
            order = ORDERS[strategy] if sort or own is None else own
            scored = order(group, ask, self._source, now_s)
            if key and kept is None and strategy == "weighted" and not sort:
                scored = of_session(group, key)
            if preferences is not NONE:
                scored.sort(key=lambda one: not _is_preferred(one.target, preferences))
            if kept is not None and not sort:
                scored.sort(key=lambda one: one.target.name != kept)
            found += [_candidate(one, route, why, strategy, kept) for one in scored]
        found = surely_fitting_first(found, ask)
        if not preferences.allow_fallbacks and preferences.order:
            others = [one for one in found if not _is_named(one.target, preferences.order)]
            left_out += [LeftOut(one.target.name, route.name, "allow_fallbacks is false and it is "
                                 "not in provider.order") for one in others]  # fmt: skip
            found = [one for one in found if _is_named(one.target, preferences.order)]
        elif not preferences.allow_fallbacks:
            left_out += [LeftOut(one.target.name, route.name, "allow_fallbacks is false")
                         for one in found[1:]]  # fmt: skip
            found = found[:1]
        return found, left_out

    def refuses(self, target: Target, ask: Ask, now_s: float) -> str | None:
        """Why a target may not be sent a request, or cannot be now; None if it may."""
        reason = _cannot_serve(target, ask) or _not_now(target, now_s)
        return None if reason is None else reason[0]

    def served(self, route: str, ask: Ask, target: Target, now_s: float) -> None:
        """Keep the session, or what begins alike, where it was served."""
        known = self.routes.get(route)
        if known is not None and known.engine_order is not None:
            known.engine_order.served(ask, target)
        if known is not None and (key := _sticky_key(known, ask)):
            self._sticky.had(route, key, target.name, now_s)


def _taken_out(route: Route, variants: Variants, found: list[Candidate]) -> list[LeftOut]:
    asked = {one.target.name for one in found}
    return [
        LeftOut(target.name, route.name, f"variant {side.name} was taken out: it failed too often")
        for side in variants.sides
        if side.name in variants.out
        for target in side.targets
        if target.name not in asked
    ]


def _sticky_key(route: Route, ask: Ask) -> str | int | None:
    if route.sticky == "session":
        return ask.session
    return ask.prefix if route.sticky == "prefix" else None


def _candidate(
    one: Scored, route: Route, why: str, strategy: Strategy, kept: str | None
) -> Candidate:
    reasons = [f"{strategy}: {one.reason}"]
    if why:
        reasons.insert(0, why)
    if one.target.name == kept:
        reasons.insert(0, "served the same session last")
    return Candidate(one.target, route.name, one.score, tuple(reasons))


def _groups(targets: list[Target], order: tuple[str, ...]) -> list[tuple[list[Target], str]]:
    """Targets that are equal but for chance, those that come first first."""
    if not order and len({one.order for one in targets}) == 1:
        level = targets[0].order
        return [(targets, f"order {level}" if level else "")]
    left = list(targets)
    groups: list[tuple[list[Target], str]] = []
    for number, name in enumerate(order, 1):
        group = [one for one in left if _is_named(one, (name,))]
        left = [one for one in left if one not in group]
        if group:
            groups.append((group, f"number {number} of provider.order"))
    for level in sorted({one.order for one in left}):
        group = [one for one in left if one.order == level]
        groups.append((group, f"order {level}" if level else ""))
    return groups


def _is_named(target: Target, names: tuple[str, ...]) -> bool:
    """Whether one of `names` is the target's provider or its own name; case does not count."""
    own = {target.provider.name.casefold(), target.name.casefold()}
    return any(name.casefold() in own for name in names)


def _not_now(
    target: Target, now_s: float, *, waits: bool = False
) -> tuple[str, float | None] | None:
    """waits: whether a request may wait for a busy one."""
    health = target.health
    if health.taken_out:
        return "an administrator took it out", _TAKEN_OUT_S
    if not health.lets_through(now_s):
        why = health.last_failure or "it failed too often"
        for_s = health.closed_for_s(now_s)
        return f"left alone for {for_s:.1f} s: {why}", for_s
    most = target.most_in_flight
    if most is not None and health.in_flight >= most and not waits:
        return f"{health.in_flight} requests are at it, as many as it may have", 0.0
    rests_s = target.provider.auth.rests_s(now_s)
    if rests_s > 0:
        return f"all keys of {target.provider.name} rest for {rests_s:.1f} s", rests_s
    return None


def _cannot_serve(target: Target, ask: Ask) -> tuple[str, float | None] | None:
    """Why it is not what the client or the rules allow, or cannot hold the request."""
    preferences = ask.wanted.preferences
    provider = target.provider
    said = None
    if preferences.only and not _is_named(target, preferences.only):
        said = "it is not in provider.only"
    elif _is_named(target, preferences.ignore):
        said = "it is in provider.ignore"
    elif preferences.quantizations and target.quantization not in preferences.quantizations:
        said = f"its weights are {target.quantization}, which provider.quantizations has not"
    elif (preferences.zdr or ask.no_retention) and provider.zero_retention is not True:
        said = "it is not known to keep nothing (zero_retention)"
    elif (
        preferences.data_collection == "deny" or ask.keeps_no_data
    ) and provider.keeps_data is not False:
        said = "it is not known to leave data alone (keeps_data)"
    elif ask.regions is not None and provider.region not in ask.regions:
        said = f"its region, {provider.region or 'unknown'}, is not one of those allowed"
    elif too_long := surely_too_long(target, ask):
        said = too_long
    elif ask.wanted.free and (
        (price := target.price) is None or price.input > 0 or price.output > 0
    ):
        said = "it is not free of charge"
    else:
        said = _too_dear(target, ask)
    return None if said is None else (said, None)


def _is_preferred(target: Target, preferences: Preferences) -> bool:
    """Whether it was as fast as the client would like; what nobody tried is given a chance."""
    least, most = (
        one.get("p50", min(one.values(), default=None)) if isinstance(one, dict) else one
        for one in (preferences.preferred_min_throughput, preferences.preferred_max_latency)
    )
    rate, first_s = target.health.tokens_per_s, target.health.first_token_s
    fast = least is None or rate is None or rate >= least
    return fast and (most is None or first_s is None or first_s <= most)


def _too_dear(target: Target, ask: Ask) -> str | None:
    most = ask.wanted.preferences.max_price
    if most is None:
        return None
    if (price := target.price) is None:
        return "its price is not known, and provider.max_price sets a limit"
    rates = price.of_prompt(ask.input_tokens)
    for name, own, limit in (
        ("prompt", rates.input, most.prompt),
        ("completion", rates.output, most.completion),
    ):
        if limit is not None and own > limit * NUSD_PER_USD:
            return f"${own / NUSD_PER_USD:g}/M {name} tokens are more than max_price's ${limit:g}"
    if most.request is not None:
        cost = expected_nusd(target, ask)
        if cost is not None and cost > most.request * NUSD_PER_USD:
            return f"about ${cost / NUSD_PER_USD:.6f} a request are more than ${most.request:g}"
    return None
