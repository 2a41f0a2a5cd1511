"""Whether an engine that claims to be alive makes progress.

A process can be there and hang. The pulse is lost when requests are open and nothing has been
heard of any of them, nor has the step counter moved, for longer than any step should take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

# The slowest honest step: a full prefill chunk of a large model on few cores.
STALL_S = 120.0


class Pulse:
    """Told what is heard of the engine; asked by /health. Times are of the clock it is given."""

    def __init__(self, clock: Callable[[], float], stall_s: float = STALL_S) -> None:
        self._clock = clock
        self._stall_s = stall_s
        self._open = 0
        self._heard_s = clock()
        self._steps = -1

    @contextmanager
    def open_request(self) -> Iterator[None]:
        """For as long as a request waits for the engine. Idle time before it is not a stall."""
        if self._open == 0:
            self._heard_s = self._clock()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    def heard(self) -> None:
        """The engine answered something."""
        self._heard_s = self._clock()

    def silent_s(self, steps: int) -> float:
        """Seconds without a sign of life, 0 with nothing to do. `steps`: the engine's count."""
        if steps != self._steps:
            self._steps = steps
            self._heard_s = self._clock()
        return self._clock() - self._heard_s if self._open else 0.0

    def beats(self, steps: int) -> bool:
        """Whether the engine is idle or has been heard of lately."""
        return self.silent_s(steps) <= self._stall_s
