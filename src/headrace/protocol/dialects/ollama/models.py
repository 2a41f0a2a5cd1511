"""Lists and descriptions of models as Ollama's clients request them: /api/tags, /api/show, ...

A gateway's models are not files: their sizes are 0. Digests are those of the names, so that they
distinguish names and stay the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.errors import RequestError
from headrace.protocol.dialects.ollama.request.fields import read_fields
from headrace.protocol.dialects.ollama.timestamp import EPOCH

VERSION = "0.12.11"
"""Of the Ollama whose API this is. Clients turn on by it what they have: this one came with
`logprobs`, the newest of what is understood here."""

_ARCHITECTURE = "headrace"
# Some clients (LiteLLM) look for the word to know whether a model takes tools.
_TEMPLATE = "{{ .System }}{{ .Tools }}{{ .Prompt }}"
_FOREVER = "9999-12-31T23:59:59Z"


class ModelFacts(NamedTuple):
    """The facts of a model whose file is here."""

    size_bytes: int = 0
    """Of its weights."""
    family: str = _ARCHITECTURE
    quantization: str = ""
    context_tokens: int = 0
    """As served."""
    file_format: str = ""
    """"gguf" or "safetensors"."""
    num_parameters: int = 0
    """Of all tensors; 0 where that is not known."""


NO_FACTS = ModelFacts()


def write_tags(
    names: Sequence[str], modified_at: str = EPOCH, facts: ModelFacts = NO_FACTS
) -> bytes:
    """The reply to GET /api/tags. modified_at: RFC 3339. facts: of all of them."""
    return msgspec.json.encode({"models": [_summary(name, modified_at, facts) for name in names]})


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
    facts: ModelFacts = NO_FACTS,
) -> bytes:
    """The reply to POST /api/show for a model that is there.

    capabilities: Ollama's words: completion, tools, vision, thinking, embedding. context_length:
    in tokens, where it is known; clients look for it by the name of the architecture.
    """
    info: dict[str, Any] = {"general.architecture": facts.family, "general.basename": name}
    if context_length is not None:
        info[f"{facts.family}.context_length"] = context_length
    shown = {
        "modelfile": "",
        "parameters": "",
        "template": _TEMPLATE if "tools" in capabilities else "",
        "details": _details(facts),
        "model_info": info,
        "capabilities": list(capabilities),
        "modified_at": modified_at,
    }
    return msgspec.json.encode(shown)


def write_ps(names: Sequence[str], facts: ModelFacts = NO_FACTS) -> bytes:
    """The reply to GET /api/ps: what is served is always loaded, and on no graphics card."""
    more = {"expires_at": _FOREVER, "size_vram": 0, "context_length": facts.context_tokens}
    loaded = [{**_summary(name, EPOCH, facts), **more} for name in names]
    for model in loaded:
        del model["modified_at"]
    return msgspec.json.encode({"models": loaded})


def write_version(version: str) -> bytes:
    """The reply to GET /api/version."""
    return msgspec.json.encode({"version": version})


def no_model(name: str, served: Iterable[str]) -> RequestError:
    """Ollama's words for a name that is not there, with those that are; the status is 404."""
    text = f"model '{name}' not found; served: {', '.join(served)}"
    return RequestError(text, param="model", code="model_not_found")


def _summary(name: str, modified_at: str, facts: ModelFacts) -> dict[str, Any]:
    return {
        "name": name,
        "model": name,
        "modified_at": modified_at,
        "size": facts.size_bytes,
        "digest": hashlib.sha256(name.encode()).hexdigest(),
        "details": _details(facts),
    }


def parameter_size(count: int) -> str:
    """A number of parameters as Ollama writes it: "8.0B", "5.8M", "260K"; "" for 0."""
    for size, letter, digits in ((10**9, "B", 1), (10**6, "M", 1), (10**3, "K", 0)):
        if count >= size:
            return f"{count / size:.{digits}f}{letter}"
    return str(count) if count else ""


def _details(facts: ModelFacts) -> dict[str, Any]:
    return {
        "parent_model": "",
        "format": facts.file_format,
        "family": facts.family,
        "families": [facts.family],
        "parameter_size": parameter_size(facts.num_parameters),
        "quantization_level": facts.quantization,
    }
