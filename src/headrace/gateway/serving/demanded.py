"""The most that is held for a request, under every name by which limits count its model."""

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

if TYPE_CHECKING:  # imported only where the configuration uses them
    from headrace.gateway.serving.composed.way import Way

# Held where the client sets no limit; most answers stay below it.
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
    """As `demand_of`, with all targets that may answer in the end and all names of the models.

    `way` is the plan for a composed model; what it may use besides the answer is held too.
    """
    candidates = decision.candidates if way is None else decision.candidates + way.may_answer
    candidates += may_follow(router, candidates, ask)
    demand = demand_of(ask, candidates, hedges, service_tier)
    asked = ask.wanted.models
    if way is not None:
        demand = way.besides.added_to(demand)
        asked += way.besides.asked
        candidates += way.besides.candidates
    return with_names(demand, router, caller, asked, (candidate.model for candidate in candidates))


def demand_of(
    ask: RoutingQuery,
    candidates: Sequence[Candidate],
    hedges: int = 0,
    service_tier: str | None = None,
) -> Demand:
    """The demand at the dearest target; its cost is None if a price is unknown.

    `hedges` is the number of targets that may be tried besides, which are cut off before they send
    content. `service_tier` is the requested one.
    """
    output = min((ask.most_output_tokens or OUTPUT_TOKENS) * ask.choices, MOST_TOKENS)
    tokens = _billed_tokens(ask, candidates)
    prices = [candidate.target.price for candidate in candidates]
    costs = [most_nusd(price, tokens, output, service_tier) for price in prices]
    known = [cost for cost in costs if cost is not None]
    most = max(known, default=0) if len(known) == len(costs) else None
    if most is not None and hedges:
        prompts = [most_nusd(price, tokens, 0, service_tier) or 0 for price in prices]
        most += hedges * max(prompts, default=0)
    return Demand(
        model=ask.wanted.models[0],
        input_tokens=ask.input_tokens * (1 + hedges),
        most_output_tokens=output,
        most_cost_nusd=most,
    )


def _billed_tokens(ask: RoutingQuery, candidates: Sequence[Candidate]) -> int:
    """The input tokens to hold. For a response that continues one of unknown size these are as many
    as a context holds, where that is known. Only budgets hold them: a limit on tokens per minute,
    often smaller than a context, would refuse every such request."""
    if ask.continued is None or ask.continued.tokens is not None:
        return ask.input_tokens
    contexts = [candidate.target.context_tokens or 0 for candidate in candidates]
    return max(ask.input_tokens, *contexts, 0)


def with_names(
    demand: Demand,
    router: Router,
    caller: Caller,
    asked: Iterable[str],
    answering: Iterable[str],
) -> Demand:
    """The demand with its models' names; they are looked up only if a limit is of one model."""
    own = router.own_name(demand.model)
    if all(meter.model == "*" for meter in caller.meters):
        return demand if own == demand.model else msgspec.structs.replace(demand, own_name=own)
    names = names_of(router, asked, answering)
    return msgspec.structs.replace(demand, own_name=own, names=names)
