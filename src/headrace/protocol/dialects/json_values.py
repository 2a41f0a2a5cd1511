"""Values out of JSON that a provider wrote: what is not of its kind counts as not there.

Cohere's and Mistral's readers share these, and how a body is written.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from headrace.errors import RequestError
from headrace.protocol.body_bounds import TOO_COMPLEX
from headrace.protocol.neutral.dialect import DamagedReplyError

# Larger integers are not exact as floats.
_MOST = 2**48
_DAMAGE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_object(body: bytes | str) -> dict[str, Any]:
    """A JSON object; raises DamagedReplyError for anything else."""
    try:
        value = msgspec.json.decode(body)
    except _DAMAGE as error:
        raise DamagedReplyError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise DamagedReplyError(f"expected a JSON object, not {type(value).__name__}")
    return value


def object_or_empty(body: bytes) -> dict[str, Any]:
    """A JSON object, {} for anything else."""
    try:
        return read_object(body)
    except DamagedReplyError:
        return {}


def text(value: Any) -> str:
    """A string, else ""."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    """An object, else {}."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list, else []."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """A finite number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # Larger integers may be no float at all.
    if isinstance(value, int):
        return float(value) if abs(value) <= _MOST else None
    return value if math.isfinite(value) else None


def json_text(value: Any) -> str:
    """A string as it is; anything else as JSON, null as "". For arguments of tool calls."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()


def encoded(value: dict[str, Any]) -> bytes:
    """JSON in one line; raises RequestError for what is nested too deeply to be written."""
    try:
        return msgspec.json.encode(value)
    except RecursionError:
        raise RequestError("the request is nested too deeply", code=TOO_COMPLEX) from None
