"""What is known of engines: their newest readings, and what each was sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.gateway.engines.prefix_index import PrefixIndex
from headrace.gateway.engines.reading import EngineReading
from headrace.gateway.targets.target import Target

# Clocks are told in floating point; an engine's start is the same within a second.
_SAME_START_S = 1.0


class EngineState:
    """By provider: one is one engine. targets: those that are engines'."""

    def __init__(self, targets: Iterable[Target]) -> None:
        self.index = PrefixIndex()
        self.readings: dict[str, EngineReading] = {}
        self._names: dict[str, list[str]] = {}
        for one in targets:
            self._names.setdefault(one.provider.name, []).append(one.name)

    @property
    def providers(self) -> Sequence[str]:
        """Names of those that are engines."""
        return tuple(self._names)

    def take(self, provider: str, reading: EngineReading) -> None:
        """The newest. An engine that was started anew has nothing of what the one before had."""
        before = self.readings.get(provider)
        self.readings[provider] = reading
        if before is None or before.started_s is None or reading.started_s is None:
            return
        if abs(before.started_s - reading.started_s) > _SAME_START_S:
            for name in self._names[provider]:
                self.index.forget(name)

    def fresh(self, provider: str, now_s: float, stale_s: float) -> EngineReading | None:
        """The newest that is young enough."""
        reading = self.readings.get(provider)
        return None if reading is None or now_s - reading.at_s > stale_s else reading
