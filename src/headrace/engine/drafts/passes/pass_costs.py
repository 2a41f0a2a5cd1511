"""What a pass of a draft model of so many tokens takes, learned from the passes themselves.

Sizes are told apart by powers of two. Of one that was not seen, a pass takes what the next smaller
one does and SLOPE of it for each token more, which is low, so that it is tried; with none smaller,
what the next larger one does.
"""

from __future__ import annotations

SLOPE = 0.06
_RATE = 0.1
_MOST_SURPRISE = 3.0
"""A pass that took more times as long as others of its size was disturbed by something else."""
_SIZES = 16


class PassCosts:
    """Seconds by the tokens of a pass."""

    def __init__(self) -> None:
        self._seconds = [0.0] * _SIZES
        self._visits = [0] * _SIZES
        self.num_seen = 0

    def note(self, num_tokens: int, seconds: float) -> None:
        """Count a pass."""
        at = min(num_tokens.bit_length() - 1, _SIZES - 1)
        self.num_seen += 1
        self._visits[at] += 1
        known, visits = self._seconds[at], self._visits[at]
        if visits == 2:
            # The first of a size brings what it works on into the caches.
            self._seconds[at] = min(known, seconds)
            return
        rate = max(_RATE, 1 / visits)
        if rate < 1:
            seconds = min(seconds, _MOST_SURPRISE * known)
        self._seconds[at] = known + rate * (seconds - known)

    def seconds(self, num_tokens: int) -> float:
        """Of a pass of so many tokens; 0 before the first pass."""
        if not self.num_seen:
            return 0.0
        at = min(num_tokens.bit_length() - 1, _SIZES - 1)
        smaller = next((size for size in range(at, -1, -1) if self._visits[size]), None)
        if smaller is None:
            return next(known for known in self._seconds if known)
        more = 0 if smaller == at else num_tokens - (1 << smaller)
        return self._seconds[smaller] * (1 + SLOPE * more)
