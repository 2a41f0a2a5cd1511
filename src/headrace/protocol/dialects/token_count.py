"""A number of tokens in a provider's reply."""

from __future__ import annotations

from headrace.protocol.dialects.json_values import read_object
from headrace.protocol.neutral.dialect import DamagedReplyError


def read_count(body: bytes, name: str) -> int:
    """The field `name` of a JSON object; raises DamagedReplyError if it is no count."""
    found = read_object(body).get(name)
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise DamagedReplyError(f"{name} is no number of tokens")
    return found
