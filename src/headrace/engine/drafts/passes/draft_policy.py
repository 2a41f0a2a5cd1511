"""When a draft model pays, and how many drafts of it.

How many drafts make the most of a step's time is chosen by what is known of steps, passes and
drafts (draft_lengths.py), and a row of them ends where the next one does not pay (draft_judge.py).
It begins with one pass, and has one more than the most drafts that came together since drafts were
made again: what a draft is worth is learned of its first place as well as of five, at a fifth of
the price.

What the draft has not read of a request has to pay as well: it is read where what drafts are
expected to spare of the request's tokens is more than that takes (reading.py). What drafts may lose
beside that is bounded by the account of gains (gain_account.py): no k is taken that would not be
paid for if none of its drafts came. A draft that is not taken is tried again now and then
(tries.py).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace.engine.drafts.gain_account import MOST as MOST_ACCOUNT
from headrace.engine.drafts.gain_account import GainAccount
from headrace.engine.drafts.passes.draft_chances import DraftChances
from headrace.engine.drafts.passes.draft_generator import (
    CATCH_UP_TOKENS,
    FEW_TOKENS,
    DraftGenerator,
    Judge,
)
from headrace.engine.drafts.passes.draft_judge import DraftJudge
from headrace.engine.drafts.passes.draft_lengths import Choice, DraftLengths, DraftRoom
from headrace.engine.drafts.passes.pass_costs import PassCosts
from headrace.engine.drafts.passes.reading import Reading
from headrace.engine.drafts.passes.tries import AT_ONCE, TRY_READS, Tries
from headrace.engine.drafts.step_costs import FIRST_PLAIN_STEPS, StepCosts
from headrace.engine.request import Request

EXPECTED_TOKENS = 128
"""Of a request that is still to come, at most: answers end before max_tokens."""

MOST_REST_STEPS = 32
"""Steps for which nothing is looked for where nothing has paid, at most, each time for longer: to
look takes a tenth of a small model's step."""
DECIDED_STEPS = 4
"""For which a choice stands while the same requests decode: it costs as much as a pass of a small
model."""

_WATCHING_RATE = 0.2


class DraftPolicy:
    """The policy of one engine on its draft model or head: when it drafts, how much, and what was
    learned of it."""

    def __init__(
        self,
        model: DraftGenerator,
        costs: StepCosts,
        *,
        most: int,
        adaptive: bool = True,
        account: GainAccount | None = None,
    ) -> None:
        """costs: of the target's steps. most: drafts of a row. adaptive: as many as pay; otherwise
        as many as there may be. account: of all drafts of the engine; one of its own for None."""
        self._model = model
        self._costs = costs
        self._most = most
        self._adaptive = adaptive
        self._account = GainAccount() if account is None else account
        self._passes = PassCosts()
        self._chances = DraftChances(most)
        self._lengths = DraftLengths(model, costs, self._passes, self._chances)
        self._decided: list[Request] = []
        """The requests of the last choice."""
        self._choices: dict[Request, Choice] = {}
        """Of those that have drafts."""
        self._steps_left = 0
        """For which it stands."""
        self._rest_steps, self._next_rest = 0, 1
        """Steps for which nothing is looked for: those of this rest that are left, and the next
        one's."""
        self._resting_batch = 0
        self._num_choices = 0
        self._at_risk_s = 0.0
        """What a step of that choice loses where no draft comes."""
        self.gain = 1.0
        """Of that choice, as it is believed: tokens for the time, over none."""
        self._reading = Reading()
        self._tries = Tries(model, costs, self._passes)
        self._reach = 0
        """Drafts of a request that lately came together, at most."""
        self._watched: Collection[Request] | None = None
        """Of which the model has ready what drafts are made of; None: of all."""
        self._watching_s = 0.0
        """What it takes of a step to have ready what drafts are made of."""
        self.seconds = 0.0
        """That the passes of the step that began took."""
        self.reading_s = 0.0
        """As far as they read what came before the last steps."""
        self._step_s = 0.0
        """Of such a step, when drafts were last looked for."""

    def begin_step(self) -> None:
        """A step begins: it may have no passes, whatever the last one had."""
        self.seconds = self.reading_s = 0.0
        self._tries.begin_step()

    @property
    def is_try(self) -> bool:
        """Whether the drafts of the step that began are tried, and paid for by credit."""
        return self._tries.is_try

    def rests(self, batch: int) -> bool:
        """Whether this step is one of those for which nothing is looked for, as nothing has paid;
        to be asked once a step, in which so many requests decode. Of other numbers of requests
        nothing is known, so that they end the rest."""
        if batch != self._resting_batch:
            self._resting_batch, self._rest_steps, self._next_rest = batch, 0, 1
        if not self._rest_steps:
            return False
        self._rest_steps -= 1
        return True

    def guess(self, batch: int, wanted: Sequence[DraftRoom], most: int) -> dict[Request, list[int]]:
        """Drafts of those requests for which they pay, in a step in which `batch` decode, and that
        has room for at most so many."""
        if not wanted:
            return {}
        if not self._passes.num_seen:
            for warm in self._model.passes:  # before the first guess, those of its warm-up
                self._passes.note(warm.num_tokens, warm.seconds)
        if not self._adaptive:
            return self._drafts([(place.request, min(place.room, self._most)) for place in wanted])
        if self._costs.num_seen < FIRST_PLAIN_STEPS:
            return {}
        decided = [place.request for place in wanted]
        if not self._steps_left or decided != self._decided:
            # In the beginning each step teaches something.
            self._num_choices += 1
            self._steps_left = min(DECIDED_STEPS, 1 + self._num_choices // 8)
            self._decided = decided
            self._choices = self._chosen(batch, wanted, most)
        self._steps_left -= 1
        step_s = self._step_s = self._costs.seconds(batch, batch)
        if self._at_risk_s > step_s * self._account.steps:
            self._choices, self._steps_left = {}, 0
        chosen = [
            (place.request, min(choice.num_drafts, place.room))
            for place in wanted
            if (choice := self._choices.get(place.request)) is not None and place.hope < choice.hope
        ]
        if chosen:
            self._next_rest = 1
            self._watch(None)
            # Of others it would be learned how often drafts of too little are right.
            chosen = [pair for pair in chosen if not self._model.num_missing(pair[0])]
        else:
            chosen = self._tried(batch, wanted, most, step_s)
        if not chosen:
            return {}
        judge = self._judge(batch, chosen)
        if self.is_try:
            return self._drafts(chosen, self._tries.num_read, latest=True, judge=judge)
        return self._drafts(chosen, self._tokens_within(step_s), judge=judge)

    def note(self, request: Request, num_before: int, token_ids: Sequence[int]) -> None:
        """A row gave a request these tokens, which had so many before."""
        num_right = self._chances.note(request, num_before, token_ids)
        if num_right is None:
            return
        self._reach = max(self._reach, num_right)
        if self.is_try:
            self._tries.note(request, num_right)
            if not num_right:
                self._reach = 0

    def take_watching_s(self) -> float:
        """Seconds of the step that ended that went to having ready what drafts are made of; to be
        asked once a step."""
        seconds = self._model.take_watching_s()
        if seconds:
            self._watching_s += _WATCHING_RATE * (seconds - self._watching_s)
        return seconds

    def note_step(self, seconds: float, gained_s: float | None = None) -> None:
        """A step took so long, passes and all. gained_s: what its drafts spared of the time that
        its tokens take without, below 0 where they cost some, and beside what was read; None where
        that is not known, or there were none."""
        gained = max(gained_s or 0.0, 0.0)
        read_s = 0.0 if self.is_try else self.reading_s
        self._reading.note_step(gained - read_s, self._step_s)
        self._tries.note_step(seconds, gained_s)

    def forget(self, request: Request) -> None:
        """The request has ended."""
        self._chances.forget(request)
        self._tries.forget(request)

    def _chosen(self, batch: int, wanted: Sequence[DraftRoom], most: int) -> dict[Request, Choice]:
        """The requests for which drafts pay, and how many; none where they do not."""
        plain_s = self._costs.seconds(batch, batch)
        most_lost_s = plain_s * self._account.steps
        best = self._lengths.best(
            batch,
            wanted,
            most,
            most_passes=1 + self._reach,
            most_lost_s=most_lost_s,
            rich=self._rich,
            watching_s=self._watching_s,
        )
        self._at_risk_s, self.gain = best.at_risk_s, best.gain
        may_read = self._reading.steps > 0 and AT_ONCE * best.at_risk_s < most_lost_s
        read_s = self._passes.seconds_per_token(plain_s)
        return {
            request: choice
            for request, choice in best.choices.items()
            if (lag := self._model.lag(request)) <= FEW_TOKENS
            or (
                may_read
                and lag * read_s
                < best.spared_s * min(EXPECTED_TOKENS, request.max_len - len(request.token_ids))
            )
        }

    def _rest(self) -> None:
        """Nothing pays: look for nothing for a while, each time for longer. What drafts are made of
        costs each step something, and is had again where it is wanted."""
        self._reach = 0
        self._rest_steps = self._next_rest
        self._next_rest = min(2 * self._next_rest, MOST_REST_STEPS)
        if self._rest_steps > 1:
            self._watch(())

    def _watch(self, requests: Collection[Request] | None) -> None:
        if requests != self._watched:
            self._watched = requests
            self._model.watch(requests)

    def _tried(
        self, batch: int, wanted: Sequence[DraftRoom], most: int, step_s: float
    ) -> list[tuple[Request, int]]:
        """The request whose drafts are tried, if any; where none is, the rest begins."""
        rooms = {place.request: place.room for place in wanted}
        request = self._tries.next_request([*rooms])
        room = rooms[request]
        count = min(1 + self._reach, room, self._most, most)
        hope = self._chances.hopes(request, count, self._rich)[-1] if count > 0 else 0.0
        verdict = self._tries.ask(
            request, batch, count, step_s,
            most_read=min(TRY_READS, self._tokens_within(step_s)), hoped_s=hope * step_s / batch,
        )  # fmt: skip
        if verdict == "now":
            self._next_rest = 1
            return [(request, count)]
        if verdict == "later":
            if self._watched is not None:
                self._watch((request,))
        else:
            self._rest()
        return []

    def _drafts(
        self,
        chosen: Sequence[tuple[Request, int]],
        most_read: int | None = None,
        *,
        latest: bool = False,
        judge: Judge | None = None,
    ) -> dict[Request, list[int]]:
        reads = sum(lag > FEW_TOKENS for request, _ in chosen if (lag := self._model.lag(request)))
        found = self._model.guess(chosen, most_read, latest=latest, judge=judge)
        passes = self._model.passes
        for made in passes:
            if made.is_usual:
                self._passes.note(made.num_tokens, made.seconds)
            self.seconds += made.seconds
        if reads and passes:
            # As if those that are read had been at hand.
            usual_s = self._pass_s(len(chosen)) if found else 0.0
            self.reading_s = max(0.0, passes[0].seconds - usual_s)
        for request, count in chosen:
            drafts = found.get(request, [])
            rated = self._model.rated(request)
            if not drafts and not rated:
                continue
            expected = 0.0
            if not self.is_try:
                expected = self._chances.hopes(request, count, self._rich)[-1]
            self._chances.begin(request, drafts, wanted=count, expected=expected, rated=rated)
        return found

    @property
    def _rich(self) -> float:
        """How full the account is, 0 to 1."""
        return min(1.0, max(0.0, self._account.steps / MOST_ACCOUNT))

    def _judge(self, batch: int, chosen: Sequence[tuple[Request, int]]) -> Judge | None:
        """What becomes of drafts as they are made, in a step in which `batch` decode; None before
        anything is known of steps or passes."""
        plain_s = self._costs.seconds(batch, batch)
        if not plain_s or not self._passes.num_seen:
            return None
        rows = sum(count for _, count in chosen)
        row_s = (self._costs.seconds(batch, batch + rows) - plain_s) / max(1, rows)
        # What time is worth: the tokens of a step, with what is expected of all of its drafts.
        rate = batch / plain_s * (1.0 if self.is_try else self.gain)
        return DraftJudge(self._chances, row_s * rate, lambda count: self._pass_s(count) * rate)

    def _pass_s(self, num_requests: int) -> float:
        step_s = self._costs.seconds(num_requests, num_requests)
        return self._passes.seconds_or(step_s, num_requests)

    def _tokens_within(self, seconds: float) -> int:
        """Tokens that are read in about the time of a step."""
        token_s = self._passes.seconds_per_token(self._costs.seconds(1, 1))
        if token_s * CATCH_UP_TOKENS <= seconds:  # none at all by a coarse clock
            return CATCH_UP_TOKENS
        return max(FEW_TOKENS, int(seconds / token_s))
