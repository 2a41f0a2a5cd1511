"""Which target a session, or prompts that begin alike, had last.

Providers cache a prompt's beginning for some minutes and bill reading it at a tenth of the price; a
request that goes elsewhere pays in full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

# As long as OpenRouter keeps it, and longer than providers' shortest lifetime of 5 minutes.
IDLE_S = 600.0
MOST = 100_000
# Share of the idle time after which a continuing session is reported to other processes again.
_TOLD_AGAIN = 0.25

Key = str | int
OnChange = Callable[[str, Key, str], None]


class _Kept(NamedTuple):
    """The target that served a session."""

    target: str
    at_s: float
    told_s: float
    """When other processes were sent this, or sent it."""


class Sticky:
    """The last targets of sessions, bounded: the least recently used is forgotten first.

    `on_change` is called with model, key and target when other processes need to know.
    """

    def __init__(
        self, *, most: int = MOST, idle_s: float = IDLE_S, on_change: OnChange | None = None
    ) -> None:
        self._on_change = on_change
        self._most = most
        self._idle_s = idle_s
        self._targets: OrderedDict[tuple[str, Key], _Kept] = OrderedDict()

    def target(self, model: str, key: Key, now_s: float) -> str | None:
        """The target's name; None if it is unknown or too long ago."""
        entry = self._targets.get((model, key))
        if entry is None:
            return None
        if now_s - entry.at_s > self._idle_s:
            del self._targets[model, key]
            return None
        return entry.target

    def had(self, model: str, key: Key, target: str, now_s: float) -> None:
        """Record that this process served it there."""
        if self._on_change is None:
            self._keep(model, key, _Kept(target, now_s, now_s))
            return
        before = self._targets.get((model, key))
        told_s = now_s if before is None or before.target != target else before.told_s
        if told_s != now_s and now_s - told_s > self._idle_s * _TOLD_AGAIN:
            told_s = now_s
        self._keep(model, key, _Kept(target, now_s, told_s))
        if told_s == now_s:
            self._on_change(model, key, target)

    def heard(self, model: str, key: Key, target: str, now_s: float) -> None:
        """Record that another process served it there."""
        self._keep(model, key, _Kept(target, now_s, now_s))

    def _keep(self, model: str, key: Key, kept: _Kept) -> None:
        self._targets[model, key] = kept
        self._targets.move_to_end((model, key))
        while len(self._targets) > self._most:
            self._targets.popitem(last=False)

    def __len__(self) -> int:
        return len(self._targets)
