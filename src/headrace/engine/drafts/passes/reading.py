"""What a draft may read of texts that it has not seen, before its drafts have gained anything.

It is paid before anything is spared, and spared again only if the request is long enough, so that
reading has an account of its own: MOST steps at most, to which comes what steps with drafts gain. A
request is read while that is above 0, by which it may fall below. What a try reads is paid for by
the credit of tries (tries.py).
"""

from __future__ import annotations

MOST = 8.0
"""Steps: some 400 tokens of a prompt where a draft's pass is a quarter of its target's step."""


class Reading:
    """The account of one engine."""

    def __init__(self) -> None:
        self.steps = MOST
        """What reading may take, in steps without drafts."""

    def note_step(self, gained_s: float, step_s: float) -> None:
        """Book a step. gained_s: what its drafts spared, less what was read in it; step_s: of a
        step without drafts, 0 where that is not known."""
        if step_s:
            self.steps = min(self.steps + gained_s / step_s, MOST)
