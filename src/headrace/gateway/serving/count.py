"""The tokens of a prompt, counted by the target that would answer it, or estimated.

Nothing is billed and the ledger gets no line; limits on requests count it. A target that cannot
count, fails or is slow is not waited for: an estimate is an answer too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from headrace.errors import RequestError
from headrace.gateway.access import check_models
from headrace.gateway.accounts.caller import Actual, Caller, Demand
from headrace.gateway.accounts.terms import DataPolicy
from headrace.gateway.routing.decision import Decision
from headrace.gateway.routing.query import estimated_tokens, query_from_body
from headrace.gateway.serving.demanded import with_names
from headrace.gateway.serving.prepared import without_ours
from headrace.gateway.serving.serving import Serving
from headrace.gateway.targets.auth import Outgoing
from headrace.gateway.targets.counting import Counting
from headrace.gateway.targets.target import Target
from headrace.gateway.upstream.errors import UpstreamError
from headrace.gateway.upstream.limits import Timeouts
from headrace.gateway.upstream.request import request_bytes
from headrace.protocol.dialects.anthropic.request.billing import call_for
from headrace.protocol.json_object import JsonObject
from headrace.protocol.neutral.call import ChatCall
from headrace.protocol.neutral.dialect import DamagedReplyError

logger = logging.getLogger(__name__)

_S_PER_NS = 1e-9
# Clients count before each turn, so an early estimate beats a late count.
_MOST_S = 3.0
_TIMEOUTS = Timeouts(1.5, _MOST_S, _MOST_S)

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CountAsked:
    """A request to count tokens."""

    dialect: str
    """The client's dialect."""
    model: str
    body: JsonObject
    call: Callable[[bytes], ChatCall]
    """Parses a body into neutral form, without the fields meant for the gateway."""
    headers: Headers
    """The client's headers that are passed on with its body."""
    caller: Caller | None


class TokenCount(NamedTuple):
    """The number of tokens of a prompt."""

    tokens: int
    target: Target | None
    """The target that counted; None for an estimate."""


async def count(serving: Serving, asked: CountAsked) -> TokenCount:
    """Count the tokens of a request. Raises RequestError and AccountsError."""
    ask = query_from_body(asked.body, asked.model)
    policy = DataPolicy() if asked.caller is None else asked.caller.data_policy
    ask = ask._replace(
        regions=policy.regions,
        no_retention=policy.zero_retention,
        keeps_no_data=policy.data_collection == "deny",
    )
    check_models(asked.caller, ask.wanted.models, serving.router)
    call = asked.call(without_ours(asked.body))
    decision = serving.router.decide(ask, serving.clock_ns() * _S_PER_NS)
    await _note(serving, asked.caller, ask.wanted.models[0], decision)
    target = decision.candidates[0].target if decision.candidates else None
    if target is not None and target.provider.counting is not None:
        try:
            async with asyncio.timeout(_MOST_S):
                return TokenCount(await _ask(serving, asked, call, target), target)
        except (UpstreamError, DamagedReplyError, RequestError, TimeoutError) as error:
            logger.info("%s did not count: %s", target.name, error or "it took too long")
    return TokenCount(estimated_tokens(call), None)


async def _note(serving: Serving, caller: Caller | None, model: str, decision: Decision) -> None:
    """Count it as a request, and as nothing else."""
    if serving.accounts is None or caller is None:
        return
    rates = tuple(meter for meter in caller.meters if meter.limit_name == "rpm")
    caller = msgspec.structs.replace(caller, meters=rates)
    counting = [candidate.model for candidate in decision.candidates[:1]]
    demand = Demand(model=model, most_cost_nusd=0)
    demand = with_names(demand, serving.router, caller, (model,), counting)
    held = await serving.accounts.reserve(caller, demand)
    await held.settle(Actual(model=counting[0] if counting else "", cost_nusd=0))


async def _ask(serving: Serving, asked: CountAsked, call: ChatCall, target: Target) -> int:
    provider, counting = target.provider, target.provider.counting
    assert counting is not None
    credential = provider.auth.pick(serving.clock_ns() * _S_PER_NS, target.model)
    if credential is None:
        raise UpstreamError("busy", f"all keys of {provider.name} rest", unsent=True)
    path, headers, body = _written(asked, call, counting, target)
    base = provider.base
    path = base.path.removesuffix("/v1") + path if counting.at_root else base.joined(path)
    headers = (*headers, *provider.headers)
    headers += await credential.headers(
        Outgoing("POST", base.origin.host_header, path, headers, body)
    )
    reply = await provider.pool.send(
        request_bytes("POST", base.origin, path, headers, body), _TIMEOUTS
    )
    try:
        told = await reply.body(serving.most_reply_bytes)
    finally:
        reply.abort()
    if reply.status != 200:
        raise DamagedReplyError(f"status {reply.status}")
    if call.tools and "tools" in reply.headers.get("x-ignored-params", ""):
        raise DamagedReplyError("tools were left out of the count")
    return counting.counter.read_token_count(told)


def _written(
    asked: CountAsked, call: ChatCall, counting: Counting, target: Target
) -> tuple[str, Headers, bytes]:
    path = counting.passes.get(asked.dialect)
    if path is not None:
        headers = (("content-type", "application/json"), *asked.headers)
        return path, headers, without_ours(asked.body, target.model)
    call = call_for(call, target.provider.side.name)
    written = counting.counter.write_count(call, target.model)
    return written.path, tuple(written.headers.items()), written.body
