"""Which target a session, or prompts that begin alike, had last.

Providers keep a prompt's beginning for some minutes and read it again at a tenth of the price; who
goes elsewhere pays in full.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

# As long as OpenRouter keeps it, and longer than providers' shortest lifetime of 5 minutes.
IDLE_S = 600.0
MOST = 100_000
# Of the time after which it is forgotten: a session that goes on is told of again so often.
_TOLD_AGAIN = 0.25

Key = str | int
OnChange = Callable[[str, Key, str], None]


class _Kept(NamedTuple):
    """told_s: when others were told of it, or told it."""

    target: str
    at_s: float
    told_s: float


class Sticky:
    """Bounded: the one that was used longest ago is forgotten first. on_change: hears of each that
    others have to know to hold to it, with its model, key and target."""

    def __init__(
        self, *, most: int = MOST, idle_s: float = IDLE_S, on_change: OnChange | None = None
    ) -> None:
        self._on_change = on_change
        self._most = most
        self._idle_s = idle_s
        self._targets: OrderedDict[tuple[str, Key], _Kept] = OrderedDict()

    def target(self, model: str, key: Key, now_s: float) -> str | None:
        """The target's name, unless it is too long ago."""
        found = self._targets.get((model, key))
        if found is None:
            return None
        if now_s - found.at_s > self._idle_s:
            del self._targets[model, key]
            return None
        return found.target

    def had(self, model: str, key: Key, target: str, now_s: float) -> None:
        """It was served there."""
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
        """Another process served it there."""
        self._keep(model, key, _Kept(target, now_s, now_s))

    def _keep(self, model: str, key: Key, kept: _Kept) -> None:
        self._targets[model, key] = kept
        self._targets.move_to_end((model, key))
        while len(self._targets) > self._most:
            self._targets.popitem(last=False)

    def __len__(self) -> int:
        return len(self._targets)
