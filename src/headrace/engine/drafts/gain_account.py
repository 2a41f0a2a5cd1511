"""What drafts have gained, and so what the next ones may lose: the bound of all that they cost.

Time is counted in steps without drafts. A step of B requests that gave n tokens in t seconds, where
one without drafts takes t_0, is booked with

    (n / B - 1) - (t / t_0 - 1)

which is what it gained, or lost. The account is never above MOST, so that of gains of an easy text
no more than that is lost on a hard one behind it, however wrong the estimates have become; and a
step may have drafts only as far as it would be paid for if none of them came. What comes in beside
gains is INCOME of the time of all steps: out of it an engine whose account is empty tries again,
with few drafts, and where they come its next steps may have more. So over any stretch of steps

    lost <= MOST + INCOME * steps

and what may still be wrong is the time of a step without drafts, which is measured again and again
(speculation.py). Tries are booked here too, but wait for a credit of their own (passes/tries.py);
what a draft model reads of prompts is paid for otherwise (passes/reading.py).
"""

from __future__ import annotations

MOST = 6.0
"""Steps. Less, and a text whose guesses come one time in three is left alone by bad luck."""
BEGIN = 2.0
"""Steps, in the beginning: before drafts have gained anything, no more than that is lost."""
INCOME = 0.003
"""Of a step."""
LEAST = -0.25
"""Steps: only what was not foreseen goes below 0, and has to be earned again by INCOME alone."""


class GainAccount:
    """The account of one engine."""

    def __init__(self) -> None:
        self.steps = BEGIN
        """What may be lost, in steps without drafts."""

    def note_plain(self, spent: float = 0.0) -> None:
        """Book a step without drafts. spent: what having drafts ready took of it."""
        self.steps = max(LEAST, min(self.steps + INCOME - spent, MOST))

    def note(self, gained: float, spent: float) -> None:
        """Book a step with drafts, both in steps without: tokens that it gave beyond one of each
        request, over the requests, and the time that it took beyond."""
        self.steps = max(LEAST, min(self.steps + INCOME + gained - spent, MOST))
