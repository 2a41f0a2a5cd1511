"""Which targets a request may be sent to: allowed by client and rules, and able to serve it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from headrace.gateway.routing.context import surely_too_long
from headrace.gateway.routing.preferences import Preferences
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.strategies import expected_nusd
from headrace.gateway.targets.auth import all_rest
from headrace.gateway.targets.target import Target
from headrace.protocol.neutral.dollars import NUSD_PER_USD

# A person decides when a target comes back; clients are told to retry after this time.
_TAKEN_OUT_S = 30.0
# What a provider promises, and the value of the setting that declares it.
_PROMISES = {
    "keeps_data": ("not to use data", "false"),
    "zero_retention": ("not to keep data", "true"),
}


class Reason(NamedTuple):
    """The reason why a target is skipped."""

    said: str
    for_s: float | None = None
    """How long it holds; None if it does not pass."""
    too_long: bool = False
    """Whether the prompt is too long, which another model may take."""
    rate_limited: bool = False
    """Whether it is a rate limit, of the provider or of the client."""
    remedy: str = ""
    """What an operator can do; clients do not read it."""


def is_named(target: Target, names: tuple[str, ...]) -> bool:
    """Whether `names` contains the target's provider or its own name, ignoring case."""
    own = {target.provider.name.casefold(), target.name.casefold()}
    return any(name.casefold() in own for name in names)


def not_now(target: Target, now_s: float, *, waits: bool = False) -> Reason | None:
    """Why no request can go to it now. `waits` says whether requests may wait for a busy target."""
    health = target.health
    if health.taken_out:
        return Reason("an administrator took it out of service", _TAKEN_OUT_S)
    if not health.lets_through(now_s):
        why = health.failed_for or "it failed too often"
        for_s = health.closed_for_s(now_s)
        return Reason(f"paused for {for_s:.1f} s: {why}", for_s)
    most = target.max_in_flight
    if most is not None and health.in_flight >= most and not waits:
        return Reason(f"it is serving {health.in_flight} requests, as many as allowed", 0.0)
    provider = target.provider
    rests_s = provider.auth.rests_s(now_s, target.model)
    if rests_s > 0:
        failure = all_rest(provider.name, provider.auth, now_s, target.model)
        return Reason(failure.message, rests_s, rate_limited=failure.kind == "rate_limit")
    return None


def cannot_serve(target: Target, ask: RoutingQuery) -> Reason | None:
    """Why the client or the rules do not allow it, or why it cannot hold the request."""
    preferences = ask.wanted.preferences
    provider = target.provider
    said = None
    if preferences.only and not is_named(target, preferences.only):
        said = "it is not in provider.only"
    elif preferences.ignore and is_named(target, preferences.ignore):
        said = "it is in provider.ignore"
    elif preferences.quantizations and target.quantization not in preferences.quantizations:
        said = f"its weights are {target.quantization}, which provider.quantizations does not list"
    elif (preferences.zdr or ask.no_retention) and provider.zero_retention is not True:
        return _no_promise(target, "zero_retention")
    elif (
        preferences.data_collection == "deny" or ask.keeps_no_data
    ) and provider.keeps_data is not False:
        return _no_promise(target, "keeps_data")
    elif ask.regions is not None and provider.region not in ask.regions:
        said = f"its region, {provider.region or 'unknown'}, is not an allowed one"
    elif too_long := surely_too_long(target, ask):
        return Reason(too_long, too_long=True)
    elif ask.wanted.free and not target.is_free:
        said = "it is not free of charge"
    elif ask.no_free is not None and target.is_given_away:
        return Reason(*ask.no_free, rate_limited=True)
    else:
        said = _too_dear(target, ask)
    return None if said is None else Reason(said)


def is_preferred(target: Target, preferences: Preferences) -> bool:
    """Whether it was as fast as the client prefers; a target not yet tried gets a chance."""
    least, most = (
        wish.get("p50", min(wish.values(), default=None)) if isinstance(wish, dict) else wish
        for wish in (preferences.preferred_min_throughput, preferences.preferred_max_latency)
    )
    rate, first_s = target.health.tokens_per_s, target.health.first_token_s
    fast = least is None or rate is None or rate >= least
    return fast and (most is None or first_s is None or first_s <= most)


def _no_promise(target: Target, setting: Literal["keeps_data", "zero_retention"]) -> Reason:
    """The reason for a missing promise: only the contract has it, so the file must declare it."""
    path = f"providers.{target.provider.name}.{setting}"
    promise, value = _PROMISES[setting]
    if getattr(target.provider, setting) is not None:
        return Reason(f"it does not promise {promise}", remedy=f"`{path}` says so")
    said = f"it is unknown whether it promises {promise}"
    return Reason(said, remedy=f"if its contract does, set `{path}: {value}`")


def _too_dear(target: Target, ask: RoutingQuery) -> str | None:
    most = ask.wanted.preferences.max_price
    if most is None:
        return None
    if (price := target.price) is None:
        return "its price is unknown, and provider.max_price sets a limit"
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
            return f"about ${cost / NUSD_PER_USD:.6f} a request is more than ${most.request:g}"
    return None
