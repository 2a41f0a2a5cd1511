"""What makes two requests the same: a digest over all that may change their answer.

The whole body counts but for fields that cannot change it, so that what nobody here knows makes
another key. The order of names and white space do not count. Words to the gateway do: `provider`,
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

# In all keys: what is kept in another form than this one's is never found.
_VERSION = 1
# Whether and how it is streamed, and for whom a provider counts it. Answers are kept whole.
_CANNOT_MATTER = ("stream", "stream_options", "user", "metadata", FIELD)
# What lies at the provider under such a name may be another thing each time.
_STATE = ("conversation", "container", "background")
# Decoding holds up everybody else.
_MOST_BODY_BYTES = 8 * 2**20


class Around(NamedTuple):
    """Of a request, what is not in its body. routes: each model asked for, with its targets.
    headers: those that are passed on. rules: what the caller's data policy demands."""

    tenant: tuple[str, ...]
    namespace: str
    dialect: str
    routes: Sequence[Sequence[str]]
    headers: Sequence[tuple[str, str]]
    rules: tuple[object, ...]


def fields_of(body: bytes) -> dict[str, Any] | None:
    """A body's values; None for one that is too large, or that readers may understand differently.

    Of a name that is there twice, one reader takes the first value and another the last: an answer
    to the one must not be kept as an answer to the other.
    """
    if len(body) > _MOST_BODY_BYTES:
        return None
    try:
        found = json.loads(body.decode(), object_pairs_hook=once)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def is_repeatable(fields: dict[str, Any]) -> bool:
    """Whether the same request is meant to have the same answer: temperature 0, or a seed.

    Ollama's clients say either in `options`.
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
    """Whether the answer hangs on what a provider keeps, or is only begun by it."""
    return any(fields.get(name) not in (None, False) for name in _STATE)


def key_of(fields: dict[str, Any], around: Around) -> bytes | None:
    """32 bytes of SHA-256; None for values that have no one form in JSON."""
    counted = {name: value for name, value in fields.items() if name not in _CANNOT_MATTER}
    try:
        text = msgspec.json.encode((_VERSION, *around, counted), order="deterministic")
    except (ValueError, OverflowError, RecursionError, TypeError, msgspec.MsgspecError):
        return None
    return hashlib.sha256(text).digest()
