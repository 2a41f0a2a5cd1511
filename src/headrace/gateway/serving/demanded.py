"""What is held for a request, with every name of a model under which limits count it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.gateway.accounts.caller import Caller, Demand
from headrace.gateway.routing.ask import Ask
from headrace.gateway.routing.decision import Decision
from headrace.gateway.routing.reach import may_follow, names_of
from headrace.gateway.routing.router import Router
from headrace.gateway.serving.asked import demand_of


def demand_at(
    router: Router,
    caller: Caller,
    ask: Ask,
    decision: Decision,
    hedges: int = 0,
    service_tier: str | None = None,
) -> Demand:
    """As `demand_of`, for everybody who may be asked in the end, by all names."""
    later = may_follow(router, decision.candidates, ask)
    if later:
        decision = decision._replace(candidates=decision.candidates + later)
    demand = demand_of(ask, decision, hedges, service_tier)
    return with_names(
        demand, router, caller, ask.wanted.models, (one.model for one in decision.candidates)
    )


def with_names(
    demand: Demand,
    router: Router,
    caller: Caller,
    asked: Iterable[str],
    answering: Iterable[str],
) -> Demand:
    """answering: models that may answer. Names are not looked for where no limit is of a model."""
    own = router.own_name(demand.model)
    if all(one.model == "*" for one in caller.meters):
        return demand if own == demand.model else msgspec.structs.replace(demand, own_name=own)
    names = names_of(router, asked, answering)
    return msgspec.structs.replace(demand, own_name=own, names=names)
