"""A setting of vLLM's, and what to write here in its place.

A value that requests what happens here anyway is accepted; any other is refused, with the name here
or with the reason why there is none. None counts as not given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from reprlib import repr as shortened
from typing import Literal, NamedTuple

Status = Literal["renamed", "no effect", "not there yet", "differs"]

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_COMPARED = (str, int, float, bool, list, tuple, dict)


class VllmSetting(NamedTuple):
    """A setting of vLLM's that does not exist here under its name."""

    name: str
    """As in vLLM's Python API; its flag is the same with dashes."""

    status: Status
    """no effect: every value is accepted. differs: headrace does it in another way, on purpose."""

    reason: str
    """What headrace does in its place; settings of headrace are in braces. Of one that is not there
    yet: what is missing, then the alternative."""

    accepts: tuple[object, ...] = ()
    """Values that request what happens anyway."""

    flags: tuple[str, ...] = ()
    """Further flags of `vllm serve` for it."""

    def hint(self, shown: Callable[[str], str]) -> str:
        """What to do in its place. shown: how a setting of headrace is written there."""
        reason = self._reason(shown)
        if self.status == "renamed":
            return reason
        yet = "it is not there yet, so " if self.status == "not there yet" else ""
        return f"{yet}omit it; {reason}"

    def takes(self, value: object) -> bool:
        """Whether the value requests what happens here anyway."""
        if value is None or self.status == "no effect":
            return True
        return any(_same(value, accepted) for accepted in self.accepts)

    def refusal(self, caller: str, value: object, shown: Callable[[str], str]) -> str:
        """Why `caller` refuses the value, and what to write in its place."""
        remedy = ""
        if self.accepts:
            remedy = f"; accepted: {' or '.join(map(repr, self.accepts))}"
        elif self.status != "renamed":
            remedy = "; omit it"
        yet = " and is not there yet" if self.status == "not there yet" else ""
        reason = self._reason(shown)
        return f"{caller}({self.name}={shortened(value)}) is vLLM's setting{yet}: {reason}{remedy}"

    def _reason(self, shown: Callable[[str], str]) -> str:
        return _PLACEHOLDER.sub(lambda found: shown(found[1]), self.reason)


def _same(value: object, accepted: object) -> bool:
    """Equality of plain values: 1 and 1.0 are equal, 1 and True are not."""
    if not isinstance(value, _COMPARED):  # an array has no one truth value
        return False
    return isinstance(value, bool) is isinstance(accepted, bool) and value == accepted


def renamed(name: str, reason: str, *, flags: tuple[str, ...] = ()) -> VllmSetting:
    """One with another name here, which `reason` says."""
    return VllmSetting(name, "renamed", reason, flags=flags)


def without_effect(name: str, reason: str, *, flags: tuple[str, ...] = ()) -> VllmSetting:
    """One that changes nothing here, whatever its value."""
    return VllmSetting(name, "no effect", reason, flags=flags)


def not_there_yet(
    name: str, reason: str, *accepts: object, flags: tuple[str, ...] = ()
) -> VllmSetting:
    """One that headrace does not have yet."""
    return VllmSetting(name, "not there yet", reason, accepts, flags)


def differs(name: str, reason: str, *accepts: object, flags: tuple[str, ...] = ()) -> VllmSetting:
    """One that headrace does not have on purpose, or does in another way."""
    return VllmSetting(name, "differs", reason, accepts, flags)


def table(*settings: VllmSetting) -> Mapping[str, VllmSetting]:
    """The settings by name. Raises ValueError for a name that is there twice."""
    found = {setting.name: setting for setting in settings}
    if len(found) != len(settings):
        raise ValueError("a setting of vLLM's is in the table twice")
    return found
