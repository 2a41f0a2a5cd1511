"""Which target a session, or prompts that begin alike, had last.

Providers keep a prompt's beginning for some minutes and read it again at a tenth of the price; who
goes elsewhere pays in full.
"""

from __future__ import annotations

from collections import OrderedDict

# As long as OpenRouter keeps it, and longer than providers' shortest lifetime of 5 minutes.
IDLE_S = 600.0
MOST = 100_000


class Sticky:
    """Bounded: the one that was used longest ago is forgotten first."""

    def __init__(self, *, most: int = MOST, idle_s: float = IDLE_S) -> None:
        self._most = most
        self._idle_s = idle_s
        self._targets: OrderedDict[tuple[str, object], tuple[str, float]] = OrderedDict()

    def target(self, model: str, key: object, now_s: float) -> str | None:
        """The target's name, unless it is too long ago."""
        found = self._targets.get((model, key))
        if found is None:
            return None
        name, at_s = found
        if now_s - at_s > self._idle_s:
            del self._targets[model, key]
            return None
        return name

    def had(self, model: str, key: object, target: str, now_s: float) -> None:
        """It was served there."""
        self._targets[model, key] = target, now_s
        self._targets.move_to_end((model, key))
        while len(self._targets) > self._most:
            self._targets.popitem(last=False)

    def __len__(self) -> int:
        return len(self._targets)
