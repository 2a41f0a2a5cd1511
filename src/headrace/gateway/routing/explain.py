"""The routing query of a request that is only explained, not sent."""

from __future__ import annotations

from headrace.gateway.routing.prompt_blocks import prompt_blocks
from headrace.gateway.routing.query import RoutingQuery, query_from_body
from headrace.gateway.routing.router import Router
from headrace.gateway.routing.variants import Who, user_of
from headrace.protocol.json_object import JsonObject


def ask_to_explain(router: Router, model: str, body: bytes) -> RoutingQuery:
    """The routing query of a request to explain. Raises RequestError if it would be refused."""
    read = JsonObject.read(body)
    return query_from_body(read, model)._replace(
        who=Who(user=user_of(read)), blocks=prompt_blocks(read) if router.has_engines else ()
    )
