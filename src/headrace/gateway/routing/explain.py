"""Who would be asked for a request: the router's answer without anybody being asked."""

from __future__ import annotations

from headrace.gateway.routing.ask import ask_of
from headrace.gateway.routing.decision import Decision
from headrace.gateway.routing.router import Router
from headrace.protocol.json_object import JsonObject


def decision_of(router: Router, model: str, body: bytes, *, now_s: float) -> Decision:
    """Raises RequestError as a request would be refused."""
    return router.decide(ask_of(JsonObject.read(body), model), now_s)
