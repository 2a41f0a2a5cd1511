"""Lists and descriptions of models as Ollama's clients request them: /api/tags, /api/show, ...

Models here are not files: sizes are 0, and digests are those of the names, so that they distinguish
names and stay the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.protocol.dialects.ollama.fields import read_fields
from headrace.protocol.dialects.ollama.timestamp import EPOCH

VERSION = "0.12.11"
"""Of the Ollama whose API this is. Clients turn on by it what they have: this one came with
`logprobs`, the newest of what is understood here."""

_ARCHITECTURE = "headrace"
# Some clients (LiteLLM) look for the word to know whether a model takes tools.
_TEMPLATE = "{{ .System }}{{ .Tools }}{{ .Prompt }}"
_FOREVER = "9999-12-31T23:59:59Z"


def write_tags(names: Sequence[str], modified_at: str = EPOCH) -> bytes:
    """The reply to GET /api/tags. modified_at: RFC 3339."""
    return msgspec.json.encode({"models": [_summary(name, modified_at) for name in names]})


def read_show(body: bytes) -> str:
    """The model that POST /api/show asks for; raises RequestError. Older clients say "name"."""
    fields = read_fields(body)
    name = fields.text("model") or fields.text("name")
    if not name:
        raise fields.missing("model", "name the model to show")
    return name


def write_show(
    name: str,
    *,
    capabilities: Sequence[str] = ("completion",),
    context_length: int | None = None,
    modified_at: str = EPOCH,
) -> bytes:
    """The reply to POST /api/show for a model that is there.

    capabilities: Ollama's words: completion, tools, vision, thinking, embedding. context_length:
    in tokens, where it is known; clients look for it by the name of the architecture.
    """
    info: dict[str, Any] = {"general.architecture": _ARCHITECTURE, "general.basename": name}
    if context_length is not None:
        info[f"{_ARCHITECTURE}.context_length"] = context_length
    shown = {
        "modelfile": "",
        "parameters": "",
        "template": _TEMPLATE if "tools" in capabilities else "",
        "details": _details(),
        "model_info": info,
        "capabilities": list(capabilities),
        "modified_at": modified_at,
    }
    return msgspec.json.encode(shown)


def write_ps(names: Sequence[str]) -> bytes:
    """The reply to GET /api/ps: what is served elsewhere is always loaded, and nowhere here."""
    loaded = [
        {**_summary(name, EPOCH), "expires_at": _FOREVER, "size_vram": 0, "context_length": 0}
        for name in names
    ]
    for one in loaded:
        del one["modified_at"]
    return msgspec.json.encode({"models": loaded})


def write_version(version: str) -> bytes:
    """The reply to GET /api/version."""
    return msgspec.json.encode({"version": version})


def no_model(name: str) -> RequestError:
    """Ollama's words for a name that is not there; the status is 404."""
    return RequestError(f"model '{name}' not found", param="model", code="model_not_found")


def _summary(name: str, modified_at: str) -> dict[str, Any]:
    return {
        "name": name,
        "model": name,
        "modified_at": modified_at,
        "size": 0,
        "digest": hashlib.sha256(name.encode()).hexdigest(),
        "details": _details(),
    }


def _details() -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": "",
        "family": _ARCHITECTURE,
        "families": [_ARCHITECTURE],
        "parameter_size": "",
        "quantization_level": "",
    }
