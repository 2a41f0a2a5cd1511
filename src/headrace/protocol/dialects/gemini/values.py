"""Values out of JSON that anybody may have written: what is not of its kind counts as not there."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.protocol.neutral.dialect import DamagedReplyError

DIALECT = "gemini"


def json_value(data: bytes | str) -> Any:
    """Any JSON at all; raises DamagedReplyError for what is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DamagedReplyError(f"not JSON: {error}") from None
