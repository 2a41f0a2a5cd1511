"""Requests with a body that need no model: loading what is always there."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from headrace.protocol.dialects.ollama import OllamaClient, load
from headrace.protocol.dialects.ollama.generate import OllamaGenerateClient
from headrace.protocol.neutral.dialect import ClientSide


def loaded_model(
    side: ClientSide, body: bytes, path: str, headers: Mapping[str, str]
) -> bytes | None:
    """Ollama's calls without messages load a model; None for every other. Raises RequestError."""
    call = side.read_call(body, path, headers)
    if load.load_reason(call) is None:
        return None
    return side.write_reply(load.load_reply(call), call)


def ollama_at(wall_s: float) -> ClientSide:
    """Its answers say when they were made."""
    return OllamaClient(created_at=_rfc3339(wall_s))


def ollama_generate_at(wall_s: float) -> ClientSide:
    """The same of /api/generate."""
    return OllamaGenerateClient(created_at=_rfc3339(wall_s))


def _rfc3339(wall_s: float) -> str:
    at = dt.datetime.fromtimestamp(wall_s, dt.UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
