"""Who may be asked in the end, and under which names of models that counts."""

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
    """Who may yet be asked for what `candidates` cannot take or will not answer, in no order.
    Whoever is at fault or busy is among them: they may not be, once their turn comes."""
    if not router.has_followers:
        return ()  # as with most files
    models = {one.model for one in candidates}
    found: tuple[Candidate, ...] = ()
    for one in lists:
        followed = {
            getattr(route, one) for model in models if (route := router.route(model)) is not None
        }
        later = tuple(each for names in followed if names for each in router.could_ask(names, ask))
        if later:
            # A request follows a list of each kind once.
            others = tuple(other for other in lists if other != one)
            found += later + may_follow(router, later, ask, others)
    return found


def names_of(
    router: Router, asked: Iterable[str], answering: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """By each model that may answer, the names under which that counts: its own, those of `asked`
    that stand for it, and of `provider/model` the models of the file with that target."""
    found = {model: {model, model.removesuffix(f":{FREE}")} for model in answering}
    for name in asked:
        for model in router.models_of(name):
            found.setdefault(model, {model}).update((name, router.own_name(name)))
    for model, names in found.items():
        names.update(router.with_target(model))
    known = {model: tuple(sorted(names)) for model, names in found.items()}
    # What is paid for besides may be called by another name of its model.
    others = {alias: known[own] for alias, own in router.aliases.items() if own in known}
    return others | known
