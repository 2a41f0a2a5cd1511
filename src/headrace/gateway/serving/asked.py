"""What a request asks for, with what holds for who asks, and the most that it may take."""

from __future__ import annotations

from headrace.gateway.accounts.caller import Demand
from headrace.gateway.accounts.terms import DataPolicy
from headrace.gateway.routing.ask import Ask, ask_of
from headrace.gateway.routing.decision import Decision
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.variants import NOBODY
from headrace.gateway.serving.bill import most_nusd
from headrace.gateway.serving.incoming import Incoming
from headrace.gateway.serving.who import SESSION_HEADERS, who_of
from headrace.protocol.json_object import JsonObject

# Where the client does not say: held back is what most answers stay below.
OUTPUT_TOKENS = 4096
# Clients may write any number; no budget is so large, and every sum of money fits.
_MOST_TOKENS = 2**31


def asked_of(incoming: Incoming, router: Router) -> Ask:
    """Raises RequestError."""
    body = incoming.body
    found = ask_of(body, incoming.model, by_prefix=router.has_prefixes)
    session = next(
        (incoming.headers[name] for name in SESSION_HEADERS if name in incoming.headers), None
    )
    if session is None:
        user = body.decoded("user")
        session = user if isinstance(user, str) else None
    if session is not None and incoming.caller is not None:
        # Sessions of two keys are two, whatever they are called.
        session = f"{incoming.caller.key_id}|{session}"
    policy = DataPolicy() if incoming.caller is None else incoming.caller.data_policy
    return found._replace(
        session=session,
        regions=policy.regions,
        no_retention=policy.zero_retention,
        keeps_no_data=policy.data_collection == "deny",
        priority=0 if incoming.caller is None else incoming.caller.priority,
        who=who_of(incoming) if router.has_variants else NOBODY,
        blocks=_blocks(body) if router.has_engines else (),
    )


def _blocks(body: JsonObject) -> tuple[int, ...]:
    from headrace.gateway.engines.prompt_blocks import prompt_blocks

    return prompt_blocks(body)


def demand_of(
    ask: Ask, decision: Decision, hedges: int = 0, service_tier: str | None = None
) -> Demand:
    """At the dearest of those who may be asked; without a cost where nobody knows a price. hedges:
    how many may be asked besides, who are cut before they say anything. service_tier: that the
    client asks for."""
    output = min((ask.most_output_tokens or OUTPUT_TOKENS) * ask.choices, _MOST_TOKENS)
    tokens = ask.input_tokens
    prices = [one.target.price for one in decision.candidates]
    costs = [most_nusd(one, tokens, output, service_tier) for one in prices]
    known = [one for one in costs if one is not None]
    most = max(known) if known and len(known) == len(costs) else None
    if most is not None and hedges:
        most += hedges * max(most_nusd(one, tokens, 0, service_tier) or 0 for one in prices)
    return Demand(
        model=ask.wanted.models[0],
        input_tokens=tokens * (1 + hedges),
        most_output_tokens=output,
        most_cost_nusd=most,
    )
