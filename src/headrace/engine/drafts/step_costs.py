"""What a step of so many requests and tokens costs, learned from the steps themselves.

    seconds of a step of B requests and n tokens  ≈  level * (W(n) + A(B)),   W(1) = 1, A(1) = 0

W is what products of n rows cost, which read all weights once however many requests the rows are
of; A is what only more requests cost: their K and V are read once for each of them, by all drafts
of a request together. Two terms, because one curve of n takes 9 requests with a token each for one
with 8 drafts, which reads a ninth of the K and V: after a busy time it would find drafts of a
single stream as expensive as those contexts. A factor for each B is no remedy: A makes the steps of
many requests longer, and not what a further row adds to them. What W(n) comes to with some requests
therefore serves for all others; only the difference of two W of the same B is ever decided by.

Steps with a token each give W(B) + A(B), those with drafts W(n) = seconds / level - A(B). The level
follows what all steps have in common (contexts that grow, a busy machine). A surprise at a size
that was seen often is the level's, at a new size the term's. Only steps that decode are counted.

What is expected of W(n) comes from the sizes below it, as a machine behaves that waits for memory:
6 % for a further token, which is low, so that a length is tried. What was measured of it is mixed
with that by how often it was seen lately; between two sizes that were seen W is a line. A is a line
between the numbers of requests that were seen, and beyond them in proportion to B - 1.

A step without drafts costs a few look-ups: what is forgotten is reckoned when it is read, and the
curve is drawn when steps with drafts have changed it, or after REDRAW_STEPS.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from itertools import pairwise

_POINTS = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17, 20, 24, 25, 28, 32, 33, 40, 48, 56, 64, 80, 96,
    128, 192, 256,
)  # fmt: skip
"""Sizes of steps that are told apart; between them the curve is a line. Kernels compute 8 and 16
rows at a time, so that a step is more likely behind those than elsewhere. Numbers of requests are
told apart by the same."""
_SLOPE = 0.06
_LEVEL_RATE = 0.15
_LEAST_RATE = 0.1
_PLAIN_RATE = 0.3
_MOST_SURPRISE = 1.25
"""A step that took more times as long as others of its size was disturbed by something else, and is
counted as that; one that took less is believed, as nothing makes a step shorter."""
_LEAST_SURPRISE = 0.3
_MOST_NEW_SURPRISE = 2.0
"""The same, of a size that was not seen lately."""
_WEIGHT_EXPECTED = 0.5
"""Of what is expected, in steps seen."""
_FORGETTING = 0.99
"""Of what was seen, each step."""
_KEPT_WEIGHTS = (0.0, 0.0, 0.5, 1.5)
"""Of a size that was seen so often, what is not forgotten: what is too expensive is not tried again
and again. One step alone may have been disturbed."""
_LEAST_COST = 0.05
"""Of any step, beside one of a token: where both terms are guessed their sum may be below 0."""
FIRST_PLAIN_STEPS = 8
"""Steps of an engine without drafts, with which others are compared. The first take longer than
later ones, of which few more are seen while drafts are made: behind three a draft model that lost a
third was taken for a gain, for a thousand tokens."""
FEW_PLAIN_STEPS = 2
"""Of a number of requests, by which it is known: one alone may have been disturbed."""
REDRAW_WEIGHT = 4.0
REDRAW_KNOWN_STEPS = 4
"""A size that counts so many steps moves little by one more: then the curve is drawn after some
steps, since to draw it takes a twentieth of a small model's step."""
REDRAW_STEPS = 64
"""After which the curve is drawn again though none of its sizes was seen: what is forgotten of them
moves it."""


def _begin(tokens: float) -> float:
    return 1.0 + _SLOPE * (tokens - 1.0)


class _Seen:
    """The measurements at each point, and how much they still count."""

    def __init__(self) -> None:
        self.points: list[int] = []
        """Those with a measurement, by place in _POINTS, ascending."""
        self.values = [0.0] * len(_POINTS)
        self._weights = [0.0] * len(_POINTS)
        self._at_step = [0] * len(_POINTS)
        self._visits = [0] * len(_POINTS)

    def weight(self, at: int, step: int) -> float:
        """The steps at a point that are not forgotten."""
        visits = self._visits[at]
        kept = _KEPT_WEIGHTS[min(visits, len(_KEPT_WEIGHTS) - 1)]
        return max(self._weights[at] * _FORGETTING ** (step - self._at_step[at]), kept)

    def add(self, at: int, step: int, value: float, expected: float) -> None:
        """Count a measurement; expected: the value where there is none yet."""
        weight = self.weight(at, step)
        before = self.values[at] if self._visits[at] else expected
        self.values[at] = before + max(_LEAST_RATE, 1 / (1 + weight)) * (value - before)
        if not self._visits[at]:
            insort(self.points, at)
        self._visits[at] += 1
        self._weights[at] = min(weight + 1, 1 / _LEAST_RATE)
        self._at_step[at] = step


class StepCosts:
    """The two terms of one engine."""

    def __init__(self) -> None:
        self._level = 0.0
        self._rows = _Seen()
        """Of W."""
        self._rows.add(0, 0, 1.0, 1.0)
        self._plain = _Seen()
        """Of W(B) + A(B): it stays what was measured when W is learned otherwise."""
        self._plain.add(0, 0, 1.0, 1.0)
        self._plain_s: dict[int, float] = {}
        """Seconds of steps without drafts, by the place of their requests."""
        self._num_plain: dict[int, int] = {}
        self._curve = [_begin(tokens) for tokens in _POINTS]
        """W at each point, as drawn last."""
        self._redraw_at = REDRAW_STEPS
        self.num_seen = 0
        """Steps."""
        self.largest_seen = 0
        """Tokens of the largest."""

    @property
    def unit_s(self) -> float:
        """Seconds of a cost of 1; 0 before the first step."""
        return self._level

    def of(self, batch: int, num_tokens: float) -> float:
        """The cost of a step of `batch` requests and so many tokens, in units that all steps share.
        Both are 1 or more."""
        return max(_LEAST_COST, self._of_rows(num_tokens) + self._of_requests(batch))

    def seconds(self, batch: int, num_tokens: float) -> float:
        """The same in seconds; 0 before the first step."""
        return self._level * self.of(batch, num_tokens)

    def plain_seconds(self, batch: int) -> float:
        """What a step of about so many requests without drafts took lately, by such steps alone:
        what `seconds` says of it depends on all others too. 0 where there was none."""
        return self._plain_s.get(_nearest(batch), 0.0)

    def knows(self, batch: int) -> bool:
        """Whether about so many requests were seen without drafts: what they cost by themselves
        would be taken for their drafts' otherwise."""
        return self._num_plain.get(_nearest(batch), 0) >= FEW_PLAIN_STEPS

    def note(self, batch: int, num_tokens: int, seconds: float) -> None:
        """Count a step that only decoded."""
        if seconds <= 0:
            return
        self.num_seen += 1
        self.largest_seen = max(self.largest_seen, num_tokens)
        step = self.num_seen
        expected = self.of(batch, num_tokens)
        if not self._level:
            self._level = seconds / expected
        is_plain = num_tokens <= batch
        seen = self._plain if is_plain else self._rows
        at = _nearest(num_tokens)
        weight = seen.weight(at, step)
        if is_plain:
            self._note_plain(at, seconds)
        most = _MOST_SURPRISE if weight >= 1 else _MOST_NEW_SURPRISE
        ratio = min(max(seconds / (self._level * expected), _LEAST_SURPRISE), most)
        # By what was measured of the size alone: the rest of what is expected of it would draw the
        # level after itself, step by step.
        measured = expected
        if not at:  # a step of one token is the unit
            seen.add(at, step, 1.0, 1.0)
        else:
            if not is_plain:
                self._anchor(_nearest(batch), step)
            point = _POINTS[at]
            drawn = self.of(point, point) if is_plain else self._curve[at]
            if weight:
                measured = max(_LEAST_COST, expected + seen.values[at] - drawn)
            # What surprises beside a point is learned of the point.
            seen.add(at, step, drawn + expected * (ratio - 1), drawn)
        surprise = min(max(seconds / (self._level * measured), _LEAST_SURPRISE), most) - 1
        self._level *= 1 + _LEVEL_RATE * weight / (1 + weight) * surprise
        if not is_plain:
            known = weight >= REDRAW_WEIGHT
            self._redraw_at = min(self._redraw_at, step + (REDRAW_KNOWN_STEPS if known else 0))
        if step >= self._redraw_at:
            self._draw(step)

    def _note_plain(self, at: int, seconds: float) -> None:
        known = self._plain_s.get(at)
        self._num_plain[at] = self._num_plain.get(at, 0) + 1
        if known is None:
            self._plain_s[at] = seconds
        else:
            self._plain_s[at] += _PLAIN_RATE * (min(seconds, _MOST_SURPRISE * known) - known)

    def _anchor(self, at: int, step: int) -> None:
        """Hold W where it is at a number of requests whose drafts are measured beside it, or a line
        from far below would take part of what they cost for its own."""
        if at not in self._rows.points:
            self._rows.add(at, step, self._curve[at], self._curve[at])

    def _of_rows(self, num_tokens: float) -> float:
        at = bisect_right(_POINTS, num_tokens) - 1
        if at + 1 == len(_POINTS):
            return self._curve[at] * num_tokens / _POINTS[at]
        low, high = _POINTS[at], _POINTS[at + 1]
        share = (num_tokens - low) / (high - low)
        return self._curve[at] + share * (self._curve[at + 1] - self._curve[at])

    def _of_requests(self, batch: int) -> float:
        points = self._plain.points
        place = bisect_left(points, batch, key=_POINTS.__getitem__)
        if place == len(points):
            last = points[-1]
            return self._beside(last) * (batch - 1) / (_POINTS[last] - 1) if last else 0.0
        high = _POINTS[points[place]]
        above = self._beside(points[place])
        if high == batch:
            return above
        low, below = _POINTS[points[place - 1]], self._beside(points[place - 1])
        return below + (batch - low) / (high - low) * (above - below)

    def _beside(self, at: int) -> float:
        """A at a point that was seen."""
        return self._plain.values[at] - self._curve[at]

    def _draw(self, step: int) -> None:
        """Draw W through what was measured."""
        curve, seen = self._curve, self._rows
        self._draw_seen(step)
        for low, high in zip(seen.points, [*seen.points[1:], len(curve)], strict=True):
            if high == len(curve):
                slope = self._slope(low)
                for at in range(low + 1, high):
                    more = _POINTS[at] - _POINTS[low]
                    expected = curve[low] * _begin(_POINTS[at]) / _begin(_POINTS[low])
                    curve[at] = min(expected, curve[low] + slope * more)
                break
            span = _POINTS[high] - _POINTS[low]
            for at in range(low + 1, high):
                share = (_POINTS[at] - _POINTS[low]) / span
                curve[at] = curve[low] + share * (curve[high] - curve[low])
        self._redraw_at = step + REDRAW_STEPS

    def _draw_seen(self, step: int) -> None:
        """Draw W at the points that were seen: it does not fall, so that of two that do both are
        what they are together, each by how much it counts. One of them may have been disturbed."""
        curve, seen = self._curve, self._rows
        level: list[tuple[float, float, int]] = [(1.0, math.inf, 1)]
        """Of runs of points: W, its weight, and how many they are."""
        for low, high in pairwise(seen.points):
            likely = level[-1][0] * _begin(_POINTS[high]) / _begin(_POINTS[low])
            weight = seen.weight(high, step)
            total = weight + _WEIGHT_EXPECTED
            value, count = (weight * seen.values[high] + _WEIGHT_EXPECTED * likely) / total, 1
            while value < level[-1][0] and len(level) > 1:
                below, own, number = level.pop()
                value = (value * total + below * own) / (total + own)
                total, count = total + own, count + number
            level.append((max(value, 1.0), total, count))
        runs = (value for value, _, count in level for _ in range(count))
        for at, value in zip(seen.points, runs, strict=True):
            curve[at] = value

    def _slope(self, last: int) -> float:
        """What a further token costs up to the largest size that was seen, from the largest of no
        more than half of it, as drawn."""
        half = bisect_right(self._rows.points, _POINTS[last] // 2, key=_POINTS.__getitem__) - 1
        if half < 0:
            return math.inf
        low = self._rows.points[half]
        risen = max(0.0, self._curve[last] - self._curve[low])
        return risen / (_POINTS[last] - _POINTS[low])


def _nearest(count: int) -> int:
    """The place of the point next to a number."""
    at = bisect_right(_POINTS, count) - 1
    if at + 1 < len(_POINTS) and count - _POINTS[at] > _POINTS[at + 1] - count:
        at += 1
    return at
