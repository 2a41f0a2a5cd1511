"""OpenAI's Responses API, POST /v1/responses: clients and providers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.protocol.dialects.openai_responses.client import CLIENT, OpenAIResponsesClient
    from headrace.protocol.dialects.openai_responses.provider import (
        PROVIDER,
        OpenAIResponsesProvider,
    )
    from headrace.protocol.dialects.openai_responses.request.state import needs_state

__all__ = [
    "CLIENT",
    "PROVIDER",
    "OpenAIResponsesClient",
    "OpenAIResponsesProvider",
    "needs_state",
]

# What clients or providers speak is imported where somebody does.
_HOMES = {
    "CLIENT": "client",
    "PROVIDER": "provider",
    "OpenAIResponsesClient": "client",
    "OpenAIResponsesProvider": "provider",
    "needs_state": "request.state",
}


def __getattr__(name: str) -> Any:
    import importlib

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
