"""OpenAI chat completions and embeddings: for clients, and for the services that copy them.

`CLIENT` speaks with clients. `OpenAIChatProvider(variant)` speaks with a provider; `PRESETS` has
the variants of those that many know, and a row of data makes another.
"""

from headrace.protocol.dialects.openai_chat.client import CLIENT, OpenAIChatClient
from headrace.protocol.dialects.openai_chat.presets import PRESETS, azure
from headrace.protocol.dialects.openai_chat.provider import OpenAIChatProvider
from headrace.protocol.dialects.openai_chat.variant import OPENAI, SAMPLERS, Variant

__all__ = [
    "CLIENT",
    "OPENAI",
    "PRESETS",
    "SAMPLERS",
    "OpenAIChatClient",
    "OpenAIChatProvider",
    "Variant",
    "azure",
]
