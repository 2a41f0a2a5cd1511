"""Which targets a request may reach in the end, and under which model names that counts."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.gateway.routing.decision import Candidate
from headrace.gateway.routing.preferences import FREE
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.router import Router

_LISTS = ("context_fallbacks", "policy_fallbacks")


def may_follow(
    router: Router,
    candidates: Iterable[Candidate],
    ask: RoutingQuery,
    lists: tuple[str, ...] = _LISTS,
) -> tuple[Candidate, ...]:
    """Candidates that may follow if `candidates` cannot take the request or fail, in no order.
    Failing and busy targets are included: they may have recovered by then."""
    if not router.has_followers:
        return ()  # as in most configurations
    models = {candidate.model for candidate in candidates}
    found: tuple[Candidate, ...] = ()
    for fallback_list in lists:
        followed = {
            getattr(route, fallback_list)
            for model in models
            if (route := router.route(model)) is not None
        }
        later = tuple(
            candidate for names in followed if names for candidate in router.could_ask(names, ask)
        )
        if later:
            # A request uses one list of each kind.
            others = tuple(other for other in lists if other != fallback_list)
            found += later + may_follow(router, later, ask, others)
    return found


def names_of(
    router: Router, asked: Iterable[str], answering: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """For each model that may answer, the names it counts under: its own, those of `asked` that
    stand for it, and for `provider/model` the configured models with that target."""
    found = {model: {model, model.removesuffix(f":{FREE}")} for model in answering}
    for name in asked:
        for model in router.models_of(name):
            found.setdefault(model, {model}).update((name, router.own_name(name)))
    for model, names in found.items():
        names.update(router.with_target(model))
    known = {model: tuple(sorted(names)) for model, names in found.items()}
    # Side calls may use another name of the model.
    others = {alias: known[own] for alias, own in router.aliases.items() if own in known}
    return others | known
