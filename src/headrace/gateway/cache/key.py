"""The key of a request in the exact cache: a digest of all that may change its answer.

The whole body counts except for fields that cannot change the answer, so unknown fields change the
key. The order of names and white space do not count. Fields meant for the gateway do: `provider`,
`models` and `route` choose who answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.gateway.cache.wish import FIELD
from headrace.protocol.once import once

# Part of every key, so that entries of another format are never found.
_VERSION = 1
# Whether and how it is streamed, and whom a provider counts it for. Answers are kept whole.
_CANNOT_MATTER = ("stream", "stream_options", "user", "metadata", FIELD)
# What such a name refers to at the provider may change from one request to the next.
_STATE = ("conversation", "container", "background")
# Decoding blocks all other requests.
_MOST_BODY_BYTES = 8 * 2**20


class Around(NamedTuple):
    """The part of a cache key that is not in the body."""

    tenant: tuple[str, ...]
    namespace: str
    dialect: str
    routes: Sequence[Sequence[str]]
    """Each requested model with its targets."""
    headers: Sequence[tuple[str, str]]
    """Headers that are passed on."""
    rules: tuple[object, ...]
    """Demands of the caller's data policy."""


def fields_of(body: bytes) -> dict[str, Any] | None:
    """A body's fields; None if it is too large, or readers may interpret it differently.

    Of a duplicate name one reader takes the first value and another the last: an answer to the one
    must not be kept as an answer to the other.
    """
    if len(body) > _MOST_BODY_BYTES:
        return None
    try:
        fields = json.loads(body.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def is_repeatable(fields: dict[str, Any]) -> bool:
    """Whether a repeated request should get the same answer: temperature 0, or a seed.

    Ollama's clients set either in `options`.
    """
    options = fields.get("options")
    for given in (fields, options if isinstance(options, dict) else {}):
        temperature, seed = given.get("temperature"), given.get("seed")
        is_number = isinstance(temperature, int | float) and not isinstance(temperature, bool)
        if is_number and temperature == 0:
            return True
        if isinstance(seed, int) and not isinstance(seed, bool):
            return True
    return False


def has_state(fields: dict[str, Any]) -> bool:
    """Whether the answer depends on state at the provider, or comes later."""
    return any(fields.get(name) not in (None, False) for name in _STATE)


def key_of(fields: dict[str, Any], around: Around) -> bytes | None:
    """A SHA-256 digest; None for values without a canonical form in JSON."""
    counted = {name: value for name, value in fields.items() if name not in _CANNOT_MATTER}
    try:
        text = msgspec.json.encode((_VERSION, *around, counted), order="deterministic")
    except (ValueError, OverflowError, RecursionError, TypeError, msgspec.MsgspecError):
        return None
    return hashlib.sha256(text).digest()
