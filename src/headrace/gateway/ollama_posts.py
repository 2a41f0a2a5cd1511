"""Ollama's POST /api/show, which describes a model."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.gateway.access import Access, may_ask
from headrace.gateway.routing.model_name import check_name
from headrace.gateway.routing.router import Router
from headrace.gateway.serving.entry import Operation
from headrace.protocol.dialects.ollama import models
from headrace.protocol.neutral.dialect import ClientSide

# If a model lacks one of these, its provider reports it on use.
_CHAT = ("completion", "tools")


class ShowPost:
    """The endpoint; `side` writes errors."""

    operation: Operation | None = None

    def __init__(self, router: Router, access: Access, side: ClientSide) -> None:
        self._router = router
        self._access = access
        self.side = side

    async def __call__(
        self, body: bytes, path: str, headers: Mapping[str, str], request_id: str, received_ns: int
    ) -> tuple[bytes, list[tuple[str, str]]]:
        """See `headrace.gateway.app.Post`."""
        caller = self._access.caller(headers)
        name = models.read_show(body)
        check_name(name, "model")
        route = self._router.route(name)
        if route is None or not may_ask(caller, name, self._router):
            routes = self._router.routes
            served = (known for known in routes if may_ask(caller, known, self._router))
            raise models.no_model(name, served)
        contexts = [
            target.context_tokens for target in route.targets if target.context_tokens is not None
        ]
        reply = models.write_show(
            name, capabilities=_CHAT, context_length=max(contexts, default=None)
        )
        return reply, []
