"""What a step of so many tokens costs beside one of fewer, learned from the steps themselves.

    seconds of a step of n tokens  ≈  level * cost(n)

The level follows what all steps have in common (contexts that grow, a busy machine); the curve is
what is learned. A surprise at a size that was seen often is the level's, at a new size the curve's.
Only steps that decode are counted: each request has one token in them, and drafts.

What is expected of a size comes from those below it, as a machine behaves that waits for memory:
6 % for a further token, which is low, so that a length is tried. What was measured of it is mixed
with that by how often it was seen lately; between two sizes that were seen the curve is a line.
"""

from __future__ import annotations

from bisect import bisect_right

_POINTS = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17, 20, 24, 25, 28, 32, 33, 40, 48, 56, 64, 80, 96,
    128, 192, 256,
)  # fmt: skip
"""Sizes of steps that are told apart; between them the curve is a line. Kernels compute 8 and 16
rows at a time, so that a step is more likely behind those than elsewhere."""
_SLOPE = 0.06
_LEVEL_RATE = 0.2
_LEAST_RATE = 0.1
_MOST_SURPRISE = 3.0
"""A step that took more times as long as others of its size was disturbed by something else."""
_MOST_NEW_SURPRISE = 10.0
"""The same, of a size that was not seen lately."""
_WEIGHT_EXPECTED = 0.5
"""Of what is expected, in steps seen."""
_FORGETTING = 0.99
"""Of what was seen, each step."""
_KEPT_WEIGHTS = (0.0, 0.0, 0.5, 1.5)
"""Of a size that was seen so often, what is not forgotten: what is too expensive is not tried again
and again. One step alone may have been disturbed."""


def _begin(tokens: float) -> float:
    return 1.0 + _SLOPE * (tokens - 1.0)


class StepCosts:
    """The curve of one engine."""

    def __init__(self) -> None:
        self._costs = [_begin(tokens) for tokens in _POINTS]
        self._measured = list(self._costs)
        self._weights = [0.0] * len(_POINTS)
        self._visits = [0] * len(_POINTS)
        self._level = 0.0
        self.num_seen = 0
        """Steps."""
        self.largest_seen = 0
        """Tokens of the largest."""

    def of(self, num_tokens: int) -> float:
        """The cost of a step of so many tokens, 1 or more, in units that all sizes share."""
        at = bisect_right(_POINTS, num_tokens) - 1
        if at + 1 == len(_POINTS):
            return self._costs[at] * num_tokens / _POINTS[at]
        low, high = _POINTS[at], _POINTS[at + 1]
        share = (num_tokens - low) / (high - low)
        return self._costs[at] + share * (self._costs[at + 1] - self._costs[at])

    def seconds(self, num_tokens: int) -> float:
        """Of a step of so many tokens; 0 before the first."""
        return self._level * self.of(num_tokens)

    def note(self, num_tokens: int, seconds: float) -> None:
        """Count a step that only decoded."""
        if seconds <= 0:
            return
        expected = self.of(num_tokens)
        if not self._level:
            self._level = seconds / expected
        ratio = seconds / (self._level * expected)
        at = bisect_right(_POINTS, num_tokens) - 1
        if at + 1 < len(_POINTS) and num_tokens - _POINTS[at] > _POINTS[at + 1] - num_tokens:
            at += 1
        weight = self._weights[at]
        most = _MOST_SURPRISE if weight >= 1 else _MOST_NEW_SURPRISE
        ratio = min(max(ratio, 1 / most), most)
        self.largest_seen = max(self.largest_seen, num_tokens)
        self.num_seen += 1
        rate = max(_LEAST_RATE, 1 / (1 + weight))
        before = self._measured[at] if weight else self._costs[at]
        self._measured[at] = before + rate * (self._costs[at] * ratio - before)
        self._level *= 1 + _LEVEL_RATE * weight / (1 + weight) * (ratio - 1)
        self._visits[at] += 1
        self._forget(at)
        self._weights[at] = min(weight + 1, 1 / _LEAST_RATE)
        self._draw()

    def _forget(self, visited: int) -> None:
        for at, visits in enumerate(self._visits):
            if visits and at != visited:
                kept = _KEPT_WEIGHTS[min(visits, len(_KEPT_WEIGHTS) - 1)]
                self._weights[at] = max(self._weights[at] * _FORGETTING, kept)

    def _draw(self) -> None:
        """Draw the curve through what was measured."""
        costs, seen = self._costs, [at for at, visits in enumerate(self._visits) if visits]
        for at in range(seen[0], -1, -1):
            costs[at] = self._measured[seen[0]] * _begin(_POINTS[at]) / _begin(_POINTS[seen[0]])
        for low, high in zip(seen, [*seen[1:], len(costs)], strict=True):
            for at in range(low + 1, high):
                costs[at] = costs[low] * _begin(_POINTS[at]) / _begin(_POINTS[low])
            if high == len(costs):
                return
            likely = costs[low] * _begin(_POINTS[high]) / _begin(_POINTS[low])
            weight = self._weights[high]
            costs[high] = (weight * self._measured[high] + _WEIGHT_EXPECTED * likely) / (
                weight + _WEIGHT_EXPECTED
            )
            span = _POINTS[high] - _POINTS[low]
            for at in range(low + 1, high):
                share = (_POINTS[at] - _POINTS[low]) / span
                costs[at] = costs[low] + share * (costs[high] - costs[low])
