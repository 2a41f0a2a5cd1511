"""What a pass of a draft model of so many tokens takes, learned from the passes themselves.

Sizes are told apart by powers of two. Between two that were seen the time is a line over the tokens
that their passes had; beyond the largest, and before the smallest, each token takes SLOPE of a pass
of one, which is low, so that a size is tried.
"""

from __future__ import annotations

SLOPE = 0.06
_RATE = 0.1
_MOST_SURPRISE = 3.0
"""A pass that took more times as long as others of its size was disturbed by something else."""
_SIZES = 16
_RATIO_BEGIN = 0.25
"""Of a pass to a step of one request, before the first pass."""
_READ_TOKENS = 128
"""Of a pass that reads a text."""


class PassCosts:
    """Seconds by the tokens of a pass."""

    def __init__(self) -> None:
        self._tokens = [0.0] * _SIZES
        """Of a pass of each size, on average."""
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
            if seconds < known:
                self._seconds[at], self._tokens[at] = seconds, num_tokens
            return
        rate = max(_RATE, 1 / visits)
        if rate < 1:
            seconds = min(seconds, _MOST_SURPRISE * known)
        self._seconds[at] = known + rate * (seconds - known)
        self._tokens[at] += rate * (num_tokens - self._tokens[at])

    def seconds(self, num_tokens: int) -> float:
        """Of a pass of so many tokens; 0 before the first pass."""
        if not self.num_seen:
            return 0.0
        at = min(num_tokens.bit_length() - 1, _SIZES - 1)
        if self._visits[at] and num_tokens < 1 << _SIZES:
            return self._seconds[at] * _begin(num_tokens) / _begin(self._tokens[at])
        below = next((size for size in range(at, -1, -1) if self._visits[size]), None)
        above = next((size for size in range(at + 1, _SIZES) if self._visits[size]), None)
        if below is None or above is None:
            (near,) = {below, above} - {None}
            assert near is not None  # some size was seen
            return self._seconds[near] * _begin(num_tokens) / _begin(self._tokens[near])
        low, high = self._tokens[below], self._tokens[above]
        share = (num_tokens - low) / (high - low)
        return self._seconds[below] + share * (self._seconds[above] - self._seconds[below])

    def seconds_or(self, step_s: float, num_tokens: int) -> float:
        """The same; before the first pass a share of what a step of as many requests takes."""
        return self.seconds(num_tokens) if self.num_seen else _RATIO_BEGIN * step_s

    def seconds_per_token(self, step_s: float) -> float:
        """For a token of a text that is read. step_s: of a step of one request."""
        if not self.num_seen:
            return _RATIO_BEGIN * step_s / 4
        return self.seconds(_READ_TOKENS) / _READ_TOKENS


def _begin(tokens: float) -> float:
    return 1.0 + SLOPE * (tokens - 1.0)
