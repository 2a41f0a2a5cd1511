"""What would become of a request, by everything that decides it; nobody is asked."""

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
from headrace.gateway.serving.composed.explained import Explained, explained
from headrace.protocol.json_object import JsonObject

_CHAT = "openai-chat"
_PATH = "/v1/chat/completions"


class Explanation(NamedTuple):
    """composed: the choice or the stages of a model made of others, None for one with targets of
    its own. note: why the body's messages cannot be read as a chat completion, "" if they can."""

    decision: Decision
    composed: Explained | None
    note: str


def explanation_of(
    gateway: Gateway, model: str, body: bytes, *, now_s: float, caller: Caller | None = None
) -> Explanation:
    """body: of a chat completion that asks for `model`, whatever it names itself. caller: by whose
    models, data policy and priority; None: by nobody's. Limits and budgets are not looked at. Of a
    model made of others the candidates are those of what is chosen, or of its stages one after the
    other. Raises RequestError as a request would be refused."""
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
    """Of a body without messages there is nothing to say: those count for little here."""
    if "messages" not in JsonObject.read(body):
        return ""
    try:
        client_side(_CHAT).read_call(body, _PATH, {})
    except RequestError as error:
        return f"the body is no chat completion that can be read: {error}"
    return ""
