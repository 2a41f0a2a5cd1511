"""LiteLLM's `num_retries` as ours: theirs are at one model's deployments, before its fallbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import ConfigError, shown

# What `retries` takes: at one target, and in all.
_MOST_AT_ONE = 10
_MOST_IN_ALL = 20
# Where it is not said there are so many in all, or one for each target.
_ATTEMPTS_UNSAID = 4
_LISTS = ("fallbacks", "context_fallbacks", "policy_fallbacks")


def retries_of(
    num_retries: Any, models: Mapping[str, Mapping[str, Any]], where: str
) -> tuple[dict[str, int], list[str]]:
    """Our `retries`, by which every target and fallback is still reached, and notes of what is not
    the same. models: ours. Raises ConfigError."""
    try:
        wanted = int(num_retries) + 1
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{where}.num_retries: {shown(num_retries)}: expected a number") from None
    targets = max((_reachable(name, models) for name in models), default=1)
    at_one = max(1, min(wanted, _MOST_AT_ONE, _MOST_IN_ALL // targets))
    notes = []
    if at_one != wanted:
        notes.append(
            f"{where}.num_retries: {shown(num_retries)} became {at_one} attempts at a target, "
            f"since one request has {_MOST_IN_ALL} in all and fallbacks need some of them"
        )
    retries = {"same_target": at_one}
    if at_one * targets > max(_ATTEMPTS_UNSAID, targets):
        retries["attempts"] = at_one * targets
    return retries, notes


def _reachable(name: str, models: Mapping[str, Mapping[str, Any]]) -> int:
    """The number of targets that a request for the model may reach."""
    own = models[name]
    others = {one for each in _LISTS for one in own.get(each, ())}
    return sum(len(models[one]["targets"]) for one in {name, *others})
