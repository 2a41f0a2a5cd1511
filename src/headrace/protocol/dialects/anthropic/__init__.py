"""Anthropic's Messages API: POST /v1/messages and /v1/messages/count_tokens.

CLIENT is for clients that speak it to us, PROVIDER for providers that we speak it to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.protocol.dialects.anthropic.client import CLIENT, AnthropicClient
    from headrace.protocol.dialects.anthropic.provider import PROVIDER, AnthropicProvider
    from headrace.protocol.dialects.anthropic.request.model_rules import ModelRules, rules_of

__all__ = [
    "CLIENT",
    "PROVIDER",
    "AnthropicClient",
    "AnthropicProvider",
    "ModelRules",
    "rules_of",
]

# What clients or providers speak is imported where somebody does.
_HOMES = {
    "CLIENT": "client",
    "PROVIDER": "provider",
    "AnthropicClient": "client",
    "AnthropicProvider": "provider",
    "ModelRules": "request.model_rules",
    "rules_of": "request.model_rules",
}


def __getattr__(name: str) -> Any:
    import importlib

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
