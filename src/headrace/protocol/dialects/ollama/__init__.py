"""Ollama's own API: /api/chat, /api/embed, and the lists of models that its clients ask for.

CLIENT, OllamaClient   what clients say and read; one with a time of its own for each answer
PROVIDER               what an Ollama server reads and says
load                   calls without messages, which load a model
models                 /api/tags, /api/show, /api/version
"""

from headrace.protocol.dialects.ollama import load, models
from headrace.protocol.dialects.ollama.client import OllamaClient
from headrace.protocol.dialects.ollama.provider import OllamaProvider
from headrace.protocol.dialects.ollama.stream_reader import OllamaStreamReader
from headrace.protocol.dialects.ollama.stream_writer import OllamaStreamWriter
from headrace.protocol.dialects.ollama.usage import Durations

CLIENT = OllamaClient()
PROVIDER = OllamaProvider()

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
