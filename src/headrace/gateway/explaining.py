"""Explains what would become of a request, without sending it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headrace.errors import RequestError
from headrace.gateway.access import check_models
from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.errors import ModelNotAllowedError
from headrace.gateway.building.dialects import client_side
from headrace.gateway.building.gateway import Gateway
from headrace.gateway.routing.decision import Decision
from headrace.gateway.routing.explain import ask_to_explain
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.serving.composed.explanation import CompositeExplanation, explained
from headrace.protocol.json_object import JsonObject

_CHAT = "openai-chat"
_PATH = "/v1/chat/completions"


class Explanation(NamedTuple):
    """The route that a request would take."""

    decision: Decision
    composed: CompositeExplanation | None
    """The choice or the stages of a composed model; None for a model with targets."""
    note: str
    """Why the body's messages are not readable as a chat completion; "" if they are."""


def explanation_of(
    gateway: Gateway, model: str, body: bytes, *, now_s: float, caller: Caller | None = None
) -> Explanation:
    """Explain a chat completion for `model`, whatever model its body names.

    `caller` supplies allowed models, data policy and priority; None for none. Limits and budgets
    are not checked. The candidates of a composed model are those of the chosen model, or of its
    stages in order. Raises RequestError if a request would be refused.
    """
    router, ways = gateway.router, gateway.serving.ways
    ask = ask_to_explain(router, model, body)
    if caller is not None:
        try:
            check_models(caller, ask.wanted.models, router)
        except ModelNotAllowedError as error:
            raise RequestError(str(error), code=error.kind) from error
        ask = _asked_by(caller, ask)
    asked, *others = ask.wanted.models
    body = JsonObject.read(body).edited({"model": msgspec.json.encode(asked)})
    composed = None if ways is None or ways.model(asked) is None else explained(ways, asked, body)
    if composed is not None:
        route = router.route(asked)
        fallbacks = () if route is None else route.fallbacks
        models = tuple(dict.fromkeys((*composed.asks, *others, *fallbacks)))
        ask = ask._replace(wanted=msgspec.structs.replace(ask.wanted, models=models))
    return Explanation(router.decide(ask, now_s), composed, _unread(body))


def _asked_by(caller: Caller, ask: RoutingQuery) -> RoutingQuery:
    policy, who = caller.data_policy, ask.who
    return ask._replace(
        regions=policy.regions,
        no_retention=policy.zero_retention,
        keeps_no_data=policy.data_collection == "deny",
        priority=caller.priority,
        who=who._replace(user=who.user or caller.user, key=caller.key_id, tags=caller.tags),
        hears_names=not caller.allowed_models,
    )


def _unread(body: bytes) -> str:
    """Why the messages are not readable; a body without messages needs none here."""
    if "messages" not in JsonObject.read(body):
        return ""
    try:
        client_side(_CHAT).read_call(body, _PATH, {})
    except RequestError as error:
        return f"the body is not a readable chat completion: {error}"
    return ""
