"""What drafts have gained, and so what the next ones may lose: the bound of all that they cost.

Time is counted in steps without drafts. A step of B requests that gave n tokens in t seconds, where
one without drafts takes t_0, is booked with

    n / B - t / t_0

which is what it gained, or lost. The account is never above MOST, so that of gains of an easy text
no more than that is lost on a hard one behind it, however wrong the estimates have become; and a
step may have drafts only as far as it would be paid for if none of them came. What comes in beside
gains is INCOME of the time of all steps: out of it an engine whose account is empty tries again,
with few drafts, and where they come its next steps may have more. So over any stretch of time

    lost <= MOST + INCOME * steps

and what is still wrong after that is the time of a step without drafts, which is measured again and
again (speculation.py).
"""

from __future__ import annotations

MOST = 6.0
"""Steps. Less, and a text whose guesses come one time in three is left alone by bad luck."""
FIRST = 3.0
"""Steps, in the beginning."""
INCOME = 0.003
"""Of the time of steps."""
_MOST_OVERRUN = 3.0
"""A step that took more times as long as expected was disturbed by something else."""


class GainAccount:
    """The account of one engine."""

    def __init__(self) -> None:
        self.steps = FIRST
        """What may be lost, in steps without drafts."""

    def note(self, batch: int, tokens: int, seconds: float, plain_s: float, usual_s: float) -> None:
        """Book a step of so many requests.

        tokens: that it gave. plain_s: what it takes without drafts; 0 where that is not known.
        usual_s: what one of its size takes, drafts being made.
        """
        self.steps += INCOME
        if plain_s > 0:
            taken_s = min(seconds, _MOST_OVERRUN * usual_s)
            self.steps += tokens / batch - taken_s / plain_s
        self.steps = min(self.steps, MOST)
