"""Requests with a body that need no model: counting tokens, loading what is always there."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from headrace.gateway.routing.ask import estimated_tokens
from headrace.protocol.dialects.anthropic import AnthropicClient
from headrace.protocol.dialects.ollama import OllamaClient, load
from headrace.protocol.neutral.dialect import ClientSide


def counted_tokens(
    side: ClientSide, body: bytes, path: str, headers: Mapping[str, str]
) -> bytes | None:
    """Anthropic's count_tokens: an estimate, rather too high than too low, as the tokenizers of
    models served elsewhere are not at hand. Raises RequestError."""
    assert isinstance(side, AnthropicClient)
    return side.write_token_count(estimated_tokens(side.read_call(body, path, headers)))


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
    at = dt.datetime.fromtimestamp(wall_s, dt.UTC)
    return OllamaClient(created_at=at.isoformat(timespec="microseconds").replace("+00:00", "Z"))
