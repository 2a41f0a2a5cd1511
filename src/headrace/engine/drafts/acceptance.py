"""How likely a guess is right, learned from guesses whose tokens have come meanwhile.

A guess is compared with what came whether or not it was computed as a draft, so that a source that
is not used goes on being judged. Each comparison is one of a position given that all before it were
right; what is known of a position is

    p = (h_r + W * p_s) / (n_r + W),   p_s = (h_s + V * p_0) / (n_s + V)

h of n the right ones: of the request (r) and of all requests (s), where the match was about as
long; p_0 a share to begin with. Older comparisons count less: n is kept below a limit by halving.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import mul

_MATCHES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Where the classes of matches begin, in tokens; below the first is one more."""
_BEGIN = (0.3, 0.35, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.8)
"""p_0 of each class: what prompt lookup does on text that repeats itself now and then. It matters
for the first few guesses of a server alone."""
_WEIGHT_BEGIN = 8.0
_WEIGHT_ALL = 4.0
_MOST_ALL = 512.0
_MOST_REQUEST = 32.0
"""Comparisons that are remembered: a text changes its kind within some sentences."""


class Shares:
    """Counts of comparisons and of those that were right, by class of match."""

    def __init__(self, most: float) -> None:
        self._most = most
        self.right = [0.0] * len(_BEGIN)
        self.compared = [0.0] * len(_BEGIN)

    def note(self, kind: int, *, right: bool) -> None:
        """Count one comparison."""
        self.right[kind] += right
        self.compared[kind] += 1.0
        if self.compared[kind] > self._most:
            self.right[kind] /= 2
            self.compared[kind] /= 2


class Acceptance:
    """The acceptance of one source, over all requests."""

    def __init__(self) -> None:
        self._shares = Shares(_MOST_ALL)

    def begin(self) -> Shares:
        """What is to be known of a request."""
        return Shares(_MOST_REQUEST)

    def chances(self, own: Shares, match_tokens: int, count: int) -> list[float]:
        """That the first `j` drafts are all right, for j of 1 to `count`; each draft that is right
        makes the match longer."""
        of_each, kind = list[float](), kind_of(match_tokens)
        at, end = match_tokens, match_tokens + count
        while at < end:
            last = min(end, _MATCHES[kind]) if kind < len(_MATCHES) else end
            of_each += [self._chance(own, kind)] * (last - at)
            at, kind = last, kind + 1
        return list(accumulate(of_each, mul))

    def note(
        self, own: Shares, match_tokens: int, guess: Sequence[int], came: Sequence[int]
    ) -> None:
        """Compare a guess with the tokens that came in its place."""
        for place, (guessed, token_id) in enumerate(zip(guess, came, strict=False)):
            kind, right = kind_of(match_tokens + place), guessed == token_id
            self._shares.note(kind, right=right)
            own.note(kind, right=right)
            if not right:
                return

    def _chance(self, own: Shares, kind: int) -> float:
        known = self._shares
        prior = (known.right[kind] + _WEIGHT_BEGIN * _BEGIN[kind]) / (
            known.compared[kind] + _WEIGHT_BEGIN
        )
        return (own.right[kind] + _WEIGHT_ALL * prior) / (own.compared[kind] + _WEIGHT_ALL)


def kind_of(match_tokens: int) -> int:
    """The class of a match."""
    return bisect_right(_MATCHES, match_tokens)
