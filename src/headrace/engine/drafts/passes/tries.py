"""When a draft that is not taken is tried again, since texts and loads change.

Tries are paid for by a credit, SHARE of the time of all steps; the tokens that a try spares are
credited, so that tries follow each other where they succeed, and where they do not that share is
all that is lost. A draft that needs some tokens more before it is as good as it gets (a head, of
what the target computes of a request that is watched) has that request watched first, once there is
credit for this and for some tries behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from headrace.engine.drafts.passes.model import PassModel
from headrace.engine.drafts.passes.pass_costs import PassCosts
from headrace.engine.drafts.passes.reading import Reading
from headrace.engine.drafts.step_costs import StepCosts
from headrace.engine.request import Request

SHARE = 0.005
"""Of the time of steps, what tries may take."""
MOST_CREDIT = 1.5
"""Steps whose time tries may take in the beginning, and are credited with at most; where one try
takes more, with that: it may have a prompt to read."""
TRY_DRAFTS = 2
"""Of a try: what the first place says of the others is little."""
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

    def __init__(
        self, model: PassModel, costs: StepCosts, passes: PassCosts, reading: Reading
    ) -> None:
        """costs: of the target's steps."""
        self._model = model
        self._costs = costs
        self._passes = passes
        self._reading = reading
        self._credit_s: float | None = None
        self._price_s = 0.0
        """What the try that was looked at last is expected to take beyond a step without."""
        self._waited_steps = 0
        """That it waited for what its drafts are made of."""
        self._num_tries = 0
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
            key=lambda each: (max(self._model.lag(each), TRY_LAG), self._tried_at.get(each, 0)),
        )

    def ask(
        self, request: Request, batch: int, count: int, step_s: float
    ) -> Literal["now", "later", "no"]:
        """Whether to try so many drafts of a request, in a step in which `batch` decode and that
        takes so long without; later: when it was watched for some tokens more."""
        missing = self._model.num_missing(request)
        self._price_s = self._price(request, batch, count, missing, step_s)
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
        """A step took so long. gained_s: as of `ModelDrafts.note_step`."""
        if self._credit_s is None:
            self._credit_s = MOST_CREDIT * seconds
        most = max(MOST_CREDIT * seconds, self._price_s)
        if self.is_try:
            self._credit_s += -self._price_s if gained_s is None else gained_s
        self._credit_s = min(self._credit_s, most) + SHARE * seconds

    def forget(self, request: Request) -> None:
        """The request has ended."""
        self._tried_at.pop(request, None)

    def _price(
        self, request: Request, batch: int, count: int, missing: int, step_s: float
    ) -> float:
        costs, passes = self._costs, self._passes
        step_one_s = costs.seconds(1, 1)
        try_s = self._model.num_passes(count) * passes.seconds_or(step_one_s, 1)
        try_s += costs.seconds(batch, batch + count) - costs.seconds(batch, batch)
        lag = max(self._model.lag(request), missing)
        reading_s, price_s = lag * passes.seconds_per_token(step_one_s), try_s
        if reading_s > step_s * self._reading.steps:
            price_s += reading_s
        if missing and not self._waited_steps:
            price_s += (AT_ONCE - 1) * try_s + missing * WATCHED_SHARE * step_s
        return price_s
