"""JSON at the dialect's edge: bytes to values and back, values that are what they have to be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.protocol.dialects.token_count import as_tokens


def encoded(value: object) -> bytes:
    """JSON of what came from JSON, also of integers beyond 64 bits, which msgspec refuses."""
    try:
        return msgspec.json.encode(value)
    except OverflowError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_unraw).encode()


def decoded(body: bytes | str) -> Any:
    """Raises ValueError for what is no JSON, or too deep to be read."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def text(value: object) -> str:
    """A string of a reply; "" for anything else."""
    return value if isinstance(value, str) else ""


def mapping(value: object) -> dict[str, Any]:
    """An object of a reply; {} for anything else."""
    return value if isinstance(value, dict) else {}


def count(value: object) -> int | None:
    """A number of tokens; None for what cannot be one."""
    return as_tokens(value)


def rest(value: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The fields that are said (not null) and not `known`."""
    return {key: one for key, one in value.items() if key not in known and one is not None}


def _unraw(value: object) -> Any:
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    raise TypeError(f"{type(value).__name__} is not JSON")
