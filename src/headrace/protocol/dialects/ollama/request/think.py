"""Ollama's `think`: true, false or a level, beside the neutral Reasoning.

true    <->  adaptive and shown: think, the model knows how much
false   <->  effort "none"
level   <->  effort, shown; "max" is "xhigh"
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.protocol.dialects.ollama.request.fields import Fields
from headrace.protocol.neutral.call import Effort, Reasoning

_EFFORTS: dict[str, Effort] = {"low": "low", "medium": "medium", "high": "high", "max": "xhigh"}
# There is no level below "low".
_LEVELS: dict[Effort, str | bool] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "max",
}


class Think(NamedTuple):
    """The `think` field of a request."""

    value: bool | str | None
    """None omits the field."""
    dropped: tuple[str, ...] = ()
    """Names of fields of the call."""


def read_think(body: Fields) -> Reasoning | None:
    """Raises RequestError for a value that is none of `think`."""
    value = body.raw("think")
    if value is None:
        return None
    if value is True:
        return Reasoning(adaptive=True, shown=True)
    if value is False:
        return Reasoning(effort="none")
    effort = _EFFORTS.get(value) if isinstance(value, str) else None
    if effort is None:
        raise body.wrong("think", value, 'true, false, "low", "medium", "high" or "max"')
    return Reasoning(effort=effort, shown=True)


def write_think(reasoning: Reasoning | None) -> Think:
    """Ollama shows what was thought, in no other form than the thoughts themselves."""
    if reasoning is None:
        return Think(None)
    dropped = ["reasoning.summary"] if reasoning.summary is not None else []
    value: bool | str | None = None
    budget_tokens = reasoning.budget_tokens
    if reasoning.effort is not None:
        value = _LEVELS[reasoning.effort]
        if reasoning.effort == "minimal":
            dropped.append("reasoning.effort")
    elif budget_tokens is not None:
        value = budget_tokens > 0
    elif reasoning.adaptive or reasoning.shown:
        value = True
    if budget_tokens is not None and budget_tokens > 0:
        dropped.append("reasoning.budget_tokens")
    if reasoning.shown is False and value is not False:
        dropped.append("reasoning.shown")
    return Think(value, tuple(dropped))
