"""What is known of engines: their newest readings, and the prompts each was sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.gateway.engines.prefix_index import PrefixIndex
from headrace.gateway.engines.reading import EngineReading
from headrace.gateway.targets.target import Target

# Times are floating point; an engine's start is the same within a second.
_SAME_START_S = 1.0


class EngineState:
    """The state of engines by provider, each of which is one engine; `targets` are theirs."""

    def __init__(self, targets: Iterable[Target]) -> None:
        self.index = PrefixIndex()
        self.readings: dict[str, EngineReading] = {}
        self._names: dict[str, list[str]] = {}
        for target in targets:
            self._names.setdefault(target.provider.name, []).append(target.name)

    @property
    def providers(self) -> Sequence[str]:
        """Names of the providers that are engines."""
        return tuple(self._names)

    def take(self, provider: str, reading: EngineReading) -> None:
        """Take a new reading. An engine that was restarted has nothing of its earlier cache."""
        before = self.readings.get(provider)
        self.readings[provider] = reading
        if before is None or before.started_s is None or reading.started_s is None:
            return
        if abs(before.started_s - reading.started_s) > _SAME_START_S:
            for name in self._names[provider]:
                self.index.forget(name)

    def fresh(self, provider: str, now_s: float, stale_s: float) -> EngineReading | None:
        """The newest reading if it is recent enough."""
        reading = self.readings.get(provider)
        return None if reading is None or now_s - reading.at_s > stale_s else reading
