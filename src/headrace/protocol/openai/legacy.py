"""Chat completions as they were before there were tools."""

from __future__ import annotations

import re
from typing import Any

from headrace.protocol.body_bounds import BodyBounds
from headrace.protocol.body_json import decode_object

_MAY_BE = re.compile(rb'"functions"|"function_call"|"role"\s*:\s*"function"')


def is_legacy(body: bytes, bounds: BodyBounds) -> bool:
    """Whether a body has `functions`, or a conversation in which functions were called. Only one
    that has these words is decoded for it; RequestError where it is not JSON within bounds."""
    if _MAY_BE.search(body) is None:
        return False
    fields = decode_object(body, bounds=bounds)
    if fields.get("functions"):
        return not fields.get("tools")
    messages = fields.get("messages")
    return isinstance(messages, list) and any(map(_is_of_a_function, messages))


def _is_of_a_function(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    return message.get("role") == "function" or message.get("function_call") is not None
