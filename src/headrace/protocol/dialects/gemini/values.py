"""Values out of JSON that anybody may have written: what is not of its kind counts as not there."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from headrace.protocol.neutral.dialect import DamagedReplyError

DIALECT = "gemini"

# More than any count of tokens; a sum of some stays a whole number in every JSON reader.
_MOST = 2**48


def count(value: Any) -> int:
    """A number of tokens, 0 for what is none. Protocol buffers write 64-bit numbers as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return min(int(value), _MOST)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    if isinstance(value, float) and not math.isfinite(value):
        return 0
    return min(max(int(value), 0), _MOST)


def json_value(data: bytes | str) -> Any:
    """Any JSON at all; raises DamagedReplyError for what is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DamagedReplyError(f"not JSON: {error}") from None
