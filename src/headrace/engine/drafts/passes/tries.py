"""When a draft that is not taken is tried again, since texts and loads change.

Tries are paid for by a credit: SHARE of the time of all steps, and GAIN_SHARE of what drafts spare,
for where drafts gained much, as in a text that copies now and then, they are looked for again soon.
A try has to cost less than the credit, by what is believed of it: what its passes and rows take and
its drafts are not expected to spare. What it really gained or lost is booked, here and on the
account of gains, so that over any stretch tries lose no more than that share.

A try has one draft, and where that is right the next one is of the same request. What its model has
read of the text is kept where the credit pays for all that came since. Of other texts the last
TRY_READS tokens alone are read, as if they began there, for each step brings a token, to read which
takes more than the step's credit (a pass of 128 tokens takes nine times as long as one of a single
one, so that a token costs 0.017 of a step where a pass takes a quarter of it, and credit is 0.003):
a text that was not read at once would never be read again. A draft that needs some tokens more
before it is as good as it gets (a head, of what the target computes of a request that is watched)
has that request watched first, once there is credit for this and for some tries behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from headrace.engine.drafts.passes.draft_generator import (
    CATCH_UP_TOKENS,
    FEW_TOKENS,
    DraftGenerator,
)
from headrace.engine.drafts.passes.pass_costs import PassCosts
from headrace.engine.drafts.step_costs import StepCosts
from headrace.engine.request import Request

SHARE = 0.003
"""Of the time of steps, what tries may take."""
GAIN_SHARE = 0.5
"""Of what drafts spare; with half of it copies of 24 tokens are found too late."""
FIRST_CREDIT = 0.5
"""Steps whose time tries may take in the beginning."""
MOST_CREDIT = 3.0
"""Steps whose time they are credited with at most."""
LEAST_LOST = 0.1
"""Of what a try takes, as far as it is believed to be lost at least."""
TRY_READS = 16
"""Tokens of a request that are read for a try where what came before is given up. headrace-head is
right as often behind sixteen as behind more (heads/head_drafts.py); a draft model of which more is
known is better with it."""
TRY_LAG = 16
"""Of requests of which no more tokens have to be read the one is tried that was not for longest."""
AT_ONCE = 4
"""Tries that credit has to be there for before a request is watched for them."""
WATCHED_SHARE = 0.08
"""Of a small model's step, what it takes to keep what a head reads, and to look for it."""
MOST_WAITED_STEPS = 32
"""For a request to be ready: what never comes is not waited for."""


class Tries:
    """The tries of one engine."""

    def __init__(self, model: DraftGenerator, costs: StepCosts, passes: PassCosts) -> None:
        """costs: of the target's steps."""
        self._model = model
        self._costs = costs
        self._passes = passes
        self._credit_s: float | None = None
        self._price_s = 0.0
        """What the try that was looked at last is expected to take beyond a step without."""
        self.num_read = 0
        """Tokens that are read for it, at most."""
        self._waited_steps = 0
        """That it waited for what its drafts are made of."""
        self._num_tries = 0
        self._promising: Request | None = None
        """Whose last try was right: the next one is of the same."""
        self._tried_at: dict[Request, int] = {}
        """The number of the try that was for a request last."""
        self.is_try = False
        """Whether the drafts of the step that began are tried, and paid for by credit."""

    def begin_step(self) -> None:
        """A step begins."""
        self.is_try = False

    def next_request(self, requests: Sequence[Request]) -> Request:
        """The request with fewest tokens to read before a try, where up to TRY_LAG count alike; of
        equals the one that was not tried for longest."""
        return min(
            requests,
            key=lambda request: (
                request is not self._promising,
                max(self._model.lag(request), TRY_LAG),
                self._tried_at.get(request, 0),
            ),
        )

    def ask(
        self,
        request: Request,
        batch: int,
        count: int,
        step_s: float,
        *,
        most_read: int,
        hoped_s: float,
    ) -> Literal["now", "later", "no"]:
        """Whether to try so many drafts of a request, in a step in which `batch` decode and that
        takes so long without; later: when it was watched for some tokens more. most_read: tokens of
        a request that are read for a try, at most, where what was read before is given up. hoped_s:
        what its drafts are expected to spare."""
        missing = self._model.num_missing(request)
        for most in (self._read_for(request, most_read), most_read):
            self.num_read = most
            self._price_s = self._price(request, batch, count, missing, step_s, most, hoped_s)
            if self._credit_s is None or self._price_s <= self._credit_s:
                break
        if self._credit_s is None or self._price_s > self._credit_s or count < 1:
            self._waited_steps = 0
            return "no"
        if missing and self._waited_steps < MOST_WAITED_STEPS:
            self._waited_steps += 1
            return "later"
        self._waited_steps = 0
        if missing:
            self._credit_s = 0.0
            return "no"
        self.is_try = True
        self._num_tries += 1
        self._tried_at[request] = self._num_tries
        return "now"

    def note_step(self, seconds: float, gained_s: float | None) -> None:
        """A step took so long. gained_s: as of `DraftPolicy.note_step`."""
        if self._credit_s is None:
            self._credit_s = FIRST_CREDIT * seconds
        most = max(MOST_CREDIT * seconds, self._price_s)
        if self.is_try:
            self._credit_s += -self._price_s if gained_s is None else gained_s
        elif gained_s is not None:
            self._credit_s += GAIN_SHARE * max(0.0, gained_s)
        self._credit_s = min(self._credit_s, most) + SHARE * seconds

    def note(self, request: Request, num_right: int) -> None:
        """So many drafts of a try were right."""
        self._promising = request if num_right else None

    def forget(self, request: Request) -> None:
        """The request has ended."""
        self._tried_at.pop(request, None)
        if request is self._promising:
            self._promising = None

    def _read_for(self, request: Request, most_read: int) -> int:
        """Tokens of a request that are read where what was read before is kept; most_read where it
        is not worth it, or one pass does not read so many."""
        lag = self._model.lag(request)
        keeps = self._model.num_at_hand(request) > TRY_READS and lag <= CATCH_UP_TOKENS
        return max(lag, most_read) if keeps else most_read

    def _price(
        self,
        request: Request,
        batch: int,
        count: int,
        missing: int,
        step_s: float,
        most_read: int,
        hoped_s: float,
    ) -> float:
        try_s = self._try_s(1, batch, count)
        lag = max(min(self._model.lag(request), most_read), missing)
        price_s = lag * self._passes.seconds_per_token(self._costs.seconds(1, 1))
        lost_s = max(try_s - hoped_s, LEAST_LOST * try_s)
        price_s += lost_s
        # More than a few tokens are read for some tries, not for one.
        if lag > FEW_TOKENS or (missing and not self._waited_steps):
            price_s += (AT_ONCE - 1) * lost_s
        if missing and not self._waited_steps:
            price_s += missing * WATCHED_SHARE * step_s
        return price_s

    def _try_s(self, num_tried: int, batch: int, count: int) -> float:
        """What drafts of so many requests take: their passes, and their places in the step."""
        costs = self._costs
        pass_s = self._passes.seconds_or(costs.seconds(num_tried, num_tried), num_tried)
        rows_s = costs.seconds(batch, batch + num_tried * count) - costs.seconds(batch, batch)
        return self._model.num_passes(count) * pass_s + rows_s
