"""Anthropic's Messages API: POST /v1/messages and /v1/messages/count_tokens.

CLIENT is for who speaks it to us, PROVIDER for whom we speak it to.
"""

from __future__ import annotations

from headrace.protocol.dialects.anthropic.client import AnthropicClient
from headrace.protocol.dialects.anthropic.model_rules import ModelRules, rules_of
from headrace.protocol.dialects.anthropic.provider import AnthropicProvider

__all__ = [
    "CLIENT",
    "PROVIDER",
    "AnthropicClient",
    "AnthropicProvider",
    "ModelRules",
    "rules_of",
]

CLIENT = AnthropicClient()
PROVIDER = AnthropicProvider()
