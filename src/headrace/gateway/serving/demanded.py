"""The most that is held for a request, with every name of a model under which limits count it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from headrace.gateway.accounts.caller import Caller, Demand
from headrace.gateway.routing.decision import Candidate, Decision
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.reach import may_follow, names_of
from headrace.gateway.routing.router import Router
from headrace.gateway.serving.bill import most_nusd
from headrace.protocol.dialects.token_count import MOST_TOKENS

if TYPE_CHECKING:  # imported where the file uses them
    from headrace.gateway.serving.composed.way import Way

# Where the client does not say: held back is what most answers stay below.
OUTPUT_TOKENS = 4096


def demand_at(
    router: Router,
    caller: Caller,
    ask: RoutingQuery,
    decision: Decision,
    hedges: int = 0,
    service_tier: str | None = None,
    way: Way | None = None,
) -> Demand:
    """As `demand_of`, for everybody who may be asked in the end, by all names. way: of a model made
    of others, of which whoever is asked besides is held too."""
    candidates = decision.candidates if way is None else decision.candidates + way.may_answer
    candidates += may_follow(router, candidates, ask)
    demand = demand_of(ask, candidates, hedges, service_tier)
    asked = ask.wanted.models
    if way is not None:
        demand = way.besides.added_to(demand)
        asked += way.besides.asked
        candidates += way.besides.candidates
    return with_names(demand, router, caller, asked, (one.model for one in candidates))


def demand_of(
    ask: RoutingQuery,
    candidates: Sequence[Candidate],
    hedges: int = 0,
    service_tier: str | None = None,
) -> Demand:
    """At the dearest of those who may be asked; without a cost where nobody knows a price. hedges:
    how many may be asked besides, who are cut before they say anything. service_tier: that the
    client asks for."""
    output = min((ask.most_output_tokens or OUTPUT_TOKENS) * ask.choices, MOST_TOKENS)
    tokens = _billed_tokens(ask, candidates)
    prices = [one.target.price for one in candidates]
    costs = [most_nusd(one, tokens, output, service_tier) for one in prices]
    known = [one for one in costs if one is not None]
    most = max(known, default=0) if len(known) == len(costs) else None
    if most is not None and hedges:
        prompts = [most_nusd(one, tokens, 0, service_tier) or 0 for one in prices]
        most += hedges * max(prompts, default=0)
    return Demand(
        model=ask.wanted.models[0],
        input_tokens=ask.input_tokens * (1 + hedges),
        most_output_tokens=output,
        most_cost_nusd=most,
    )


def _billed_tokens(ask: RoutingQuery, candidates: Sequence[Candidate]) -> int:
    """Of a response that goes on from one of which nobody here knows what it took, as many as a
    context has, where that is known. Budgets alone hold them: a limit of tokens a minute, which is
    often less than a context, would let nothing of the kind through."""
    if ask.continued is None or ask.continued.tokens is not None:
        return ask.input_tokens
    contexts = [one.target.context_tokens or 0 for one in candidates]
    return max(ask.input_tokens, *contexts, 0)


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
