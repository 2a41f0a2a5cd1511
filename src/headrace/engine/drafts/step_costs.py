"""What a step of so many tokens costs beside one of fewer, learned from the steps themselves.

    seconds of a step of n tokens  ≈  level * cost(n)

The level follows what all steps have in common (contexts that grow, a busy machine) and moves
fast; the curve is what is learned, and moves slowly. Only steps that decode are counted: each
request has one token in them, and drafts. Where no step has been yet the curve goes on from its
neighbour as a machine does that waits for memory: 6 % for a further token. That is low, so that a
length is tried, and what it costs is known then.
"""

from __future__ import annotations

from bisect import bisect_right

_POINTS = (
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 128, 192, 256,
)  # fmt: skip
"""Sizes of steps that are told apart; between them the curve is a line."""
_SLOPE = 0.06
_LEVEL_RATE = 0.2
_LEAST_RATE = 0.1
_FIRST_RATE = 0.5
"""A first step of its size may have been disturbed."""
_MOST_SURPRISE = 2.0
"""A step that took more times as long as expected was disturbed by something else."""
_FADE = 0.002
"""By which each step brings sizes that were not seen nearer to their neighbour: after some hundred
steps what was found too expensive is tried again."""


def _begin(tokens: float) -> float:
    return 1.0 + _SLOPE * (tokens - 1.0)


class StepCosts:
    """The curve of one engine."""

    def __init__(self) -> None:
        self._costs = [_begin(tokens) for tokens in _POINTS]
        self._visits = [0] * len(_POINTS)
        self._level = 0.0

    def of(self, num_tokens: int) -> float:
        """The cost of a step of so many tokens, 1 or more, in units that all sizes share."""
        at = bisect_right(_POINTS, num_tokens) - 1
        if at + 1 == len(_POINTS):
            return self._costs[at] * num_tokens / _POINTS[at]
        low, high = _POINTS[at], _POINTS[at + 1]
        share = (num_tokens - low) / (high - low)
        return self._costs[at] + share * (self._costs[at + 1] - self._costs[at])

    def note(self, num_tokens: int, seconds: float) -> None:
        """Count a step that only decoded."""
        if seconds <= 0:
            return
        expected = self.of(num_tokens)
        if not self._level:
            self._level = seconds / expected
        ratio = seconds / (self._level * expected)
        ratio = min(max(ratio, 1 / _MOST_SURPRISE), _MOST_SURPRISE)
        at = bisect_right(_POINTS, num_tokens) - 1
        if at + 1 < len(_POINTS) and num_tokens - _POINTS[at] > _POINTS[at + 1] - num_tokens:
            at += 1
        visits = self._visits[at]
        rate = max(_LEAST_RATE, _FIRST_RATE / (1 + visits))
        self._costs[at] *= 1 + rate * (ratio - 1)
        self._visits[at] = visits + 1
        self._level *= 1 + _LEVEL_RATE * (ratio - 1)
        self._fade(at)

    def _fade(self, visited: int) -> None:
        """Bring the sizes larger than one that was seen nearer to what that makes likely."""
        costs = self._costs
        for at in range(visited + 1, len(costs)):
            likely = costs[visited] * _begin(_POINTS[at]) / _begin(_POINTS[visited])
            rate = _FADE if self._visits[at] else 1.0
            costs[at] += rate * (likely - costs[at])
            if self._visits[at]:
                break
