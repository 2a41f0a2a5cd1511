"""Ollama's own API: /api/chat, /api/embed, and the lists of models that its clients ask for.

CLIENT, OllamaClient   the client side; one with a time of its own for each answer
PROVIDER               what an Ollama server reads and says
load                   calls without messages, which load a model
models                 /api/tags, /api/ps, /api/show, /api/version
generate               /api/generate: the same as a chat of one turn
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.protocol.dialects.ollama import load, models
    from headrace.protocol.dialects.ollama.client import CLIENT, OllamaClient
    from headrace.protocol.dialects.ollama.provider import PROVIDER, OllamaProvider
    from headrace.protocol.dialects.ollama.reply.stream_reader import OllamaStreamReader
    from headrace.protocol.dialects.ollama.reply.stream_writer import OllamaStreamWriter
    from headrace.protocol.dialects.ollama.reply.usage import Durations

__all__ = [
    "CLIENT",
    "PROVIDER",
    "Durations",
    "OllamaClient",
    "OllamaProvider",
    "OllamaStreamReader",
    "OllamaStreamWriter",
    "load",
    "models",
]

# What clients or providers speak is imported where somebody does.
_HOMES = {
    "CLIENT": "client",
    "PROVIDER": "provider",
    "Durations": "reply.usage",
    "OllamaClient": "client",
    "OllamaProvider": "provider",
    "OllamaStreamReader": "reply.stream_reader",
    "OllamaStreamWriter": "reply.stream_writer",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name in ("load", "models"):
        return importlib.import_module(f"{__name__}.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
