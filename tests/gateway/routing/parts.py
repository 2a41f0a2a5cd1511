"""Routes and targets without a server behind them, and what is asked of them."""

from __future__ import annotations

import random
from typing import Any

from headrace.gateway.routing.decision import Decision
from headrace.gateway.routing.preferences import read_wanted
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.routing.route import Route
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.sticky import Sticky
from headrace.gateway.settings.reliability import RetrySettings
from headrace.gateway.targets.auth import Auth, NoAuth
from headrace.gateway.targets.provider import Provider
from headrace.gateway.targets.target import Price, Target
from headrace.gateway.upstream.limits import Timeouts
from headrace.gateway.upstream.origin import read_base_url
from headrace.gateway.upstream.pool import Pool
from headrace.protocol.dialects.ollama import PROVIDER as SIDE
from headrace.protocol.neutral.dollars import NUSD_PER_USD


def provider(name: str, *, auth: Auth | None = None, **more: Any) -> Provider:
    base = read_base_url("http://127.0.0.1:9")
    return Provider(
        name=name, side=SIDE, base=base, auth=auth or NoAuth(), pool=Pool(base.origin),
        timeouts=Timeouts(1.0, 1.0, 1.0), first_token_s=1.0, **more,
    )  # fmt: skip


def target(name: str, *, usd: tuple[float, float] | None = None, **more: Any) -> Target:
    """name: "provider/model". usd: of a million tokens in and out."""
    of, _, model = name.partition("/")
    at = more.pop("provider", None) or provider(of)
    if usd is not None:
        more["fixed_price"] = Price(
            input=round(usd[0] * NUSD_PER_USD), output=round(usd[1] * NUSD_PER_USD)
        )
    return Target(name=name, provider=at, model=model, **more)


def route(name: str, *targets: Target, **more: Any) -> Route:
    return Route(name=name, targets=targets, retries=RetrySettings(), total_s=60.0, **more)


def router(*routes: Route, seed: int = 1, aliases: dict[str, str] | None = None) -> Router:
    return Router({one.name: one for one in routes}, aliases or {}, Sticky(), random.Random(seed))


def asking(model: str = "m", **fields: Any) -> RoutingQuery:
    """Of a request for `model` with the routing fields of its body."""
    more = {name: fields.pop(name) for name in tuple(fields) if name in RoutingQuery._fields}
    return RoutingQuery(wanted=read_wanted(model, fields), **{"input_tokens": 1000, **more})


def names(decision: Decision) -> list[str]:
    return [one.target.name for one in decision.candidates]


def left_out(decision: Decision) -> dict[str, str]:
    return {skipped.target: skipped.for_operators for skipped in decision.left_out}


A, B, C = (target(f"{name}/m") for name in "abc")
