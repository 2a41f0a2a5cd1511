"""Which field of ours a server refuses, as far as its words tell, and what is sent in its place.

Servers differ in a few fields that a run needs. Who does not know one answers 400 or 422 and names
it; the same names stand in complaints about values, which no other field would mend.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

REFUSING_STATUSES = (400, 422)

_REFUSES = re.compile(
    r"unsupported|not support|unknown|unrecogni[sz]ed|unexpected|extra (?:inputs|fields)|"
    r"additional propert|not (?:permitted|allowed|valid|recogni[sz]ed|known)|no such|"
    r"does not (?:exist|accept|take)",
    re.IGNORECASE,
)


class Remedy(NamedTuple):
    """The flag and the key that avoid a field which an endpoint refuses."""

    flag: str
    """The flag of `bench load`."""
    key: str
    """The key, with its value, in the providers file."""


# The narrower field first: a message about it may name the wider one, too.
_REMEDIES: Mapping[str, Remedy] = {
    "return_metrics": Remedy("--no-return-metrics", "return_metrics: false"),
    "continuous_usage_stats": Remedy("no --continuous-usage", "continuous_usage: false"),
    "include_usage": Remedy("--no-include-usage", "include_usage: false"),
    "stream_options": Remedy("--no-include-usage", "include_usage: false"),
}
_TO_COMPLETION_TOKENS = Remedy(
    "--max-tokens-field max_completion_tokens", "max_tokens_field: max_completion_tokens"
)
_TO_MAX_TOKENS = Remedy("--max-tokens-field max_tokens", "max_tokens_field: max_tokens")


def refused_field(status: int | None, message: str) -> Remedy | None:
    """What helps against a reply with this status and message; None where nothing here would."""
    if status not in REFUSING_STATUSES or not _REFUSES.search(message):
        return None
    words = re.findall(r"[a-z]+(?:_[a-z]+)+", message)
    for name, remedy in _REMEDIES.items():
        if name in words:
            return remedy
    limits = [word for word in words if word in ("max_tokens", "max_completion_tokens")]
    if not limits:
        return None
    # The refused one is named first: "use the other instead".
    return _TO_COMPLETION_TOKENS if limits[0] == "max_tokens" else _TO_MAX_TOKENS
