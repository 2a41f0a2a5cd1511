"""Values out of JSON that a provider wrote: what is not of its kind counts as not there."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from headrace.errors import shown
from headrace.protocol.neutral.dialect import DamagedReplyError

# Reader and writer both end at Python's recursion limit (1000), of which their callers take some.
MAX_DEPTH = 400


def too_deep(value: Any, text: bytes | str) -> bool:
    """Whether `value`, read from `text`, has more than MAX_DEPTH levels."""
    # Few brackets are not nested deeply: nearly all bodies end here.
    if isinstance(text, str):
        brackets = text.count("{") + text.count("[")
    else:
        brackets = text.count(b"{") + text.count(b"[")
    if brackets <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


DIALECT = "openai-responses"

# Of OpenAI's API, in requests and replies.
SERVICE_TIERS = frozenset({"auto", "default", "flex", "scale", "priority"})

# More than any count of tokens; a sum of some stays a whole number in every JSON reader.
_MOST = 2**48


def text(value: Any) -> str:
    """A string, else ""."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> dict[str, Any]:
    """An object, else {}."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list, else []."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count(value: Any) -> int:
    """A number of things, 0 for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    if isinstance(value, float) and not math.isfinite(value):
        return 0
    return min(max(int(value), 0), _MOST)


def whole(value: Any) -> int | None:
    """A number of things as such, None for what is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return count(value) if 0 <= value <= _MOST else None


def rest(value: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """The fields of an object that are not `known` and say something."""
    return {name: field for name, field in value.items() if name not in known and field is not None}


def decoded_reply(body: bytes | str) -> dict[str, Any]:
    """The JSON object that `body` is; raises DamagedReplyError if it is none."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedReplyError(f"the reply is not valid JSON: {error}") from None
    except RecursionError:
        raise DamagedReplyError("the reply is nested too deeply") from None
    if not isinstance(value, dict):
        raise DamagedReplyError(f"the reply must be a JSON object, not {shown(value)}")
    if too_deep(value, body):
        raise DamagedReplyError("the reply is nested too deeply")
    return value
