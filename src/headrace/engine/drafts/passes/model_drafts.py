"""When a draft model pays, and how many drafts of it.

A step of B requests gives a token each, and of a request with k drafts the sum of P(1) to P(k)
more, P(j) being the chance that its first j drafts are all right. It costs c(n) for its n tokens,
and a pass of the draft for each place, d(r) for r requests. Of all k the one is taken that makes
the most of

    (B + sum of what is expected) / (c(n) + k * d(r))

and none where that is not LEAST_GAIN above what k = 0 gives. Requests for which a guess that costs
nothing promises as much keep that. All of c, d and P are measured while serving: d by the passes
themselves, P by comparing drafts with what came, of the request and of all of them:

    p(j) = (h_r + W * p_s(j)) / (n_r + W),   p_s(j) = (h_s + V * p_s(j - 1)) / (n_s + V)

P(j) is p(1) ... p(j); h of n drafts at place j were right, those before it being right: of the
request (r), of all of about its temperature (s). What is not known of a place yet is what the one
before it does.

What the draft has not read of a request has to pay as well: it is read where what drafts are
expected to spare of the request's tokens is more than that takes (reading.py). What drafts may lose
beside that is bounded by the account of gains (gain_account.py): no k is taken that would not be
paid for if none of its drafts came. A draft that is not taken is tried again now and then
(tries.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import NamedTuple

from headrace.engine.drafts.gain_account import GainAccount
from headrace.engine.drafts.passes.model import PassModel
from headrace.engine.drafts.passes.pass_costs import PassCosts
from headrace.engine.drafts.passes.reading import Reading
from headrace.engine.drafts.passes.tries import TRY_DRAFTS, Tries
from headrace.engine.drafts.step_costs import StepCosts
from headrace.engine.request import Request

LEAST_GAIN = 1.03
"""What is gained by less is within the error of the estimates."""
FEW_TOKENS = 16
"""Of a request, that came in the last steps: the draft computes so many whatever others need."""
EXPECTED_TOKENS = 128
"""Of a request that is still to come, at most: answers end before max_tokens."""
FIRST_PLAIN_STEPS = 3
"""Steps of an engine without drafts, with which others are compared."""

MOST_REST_STEPS = 32
"""Steps for which nothing is looked for where nothing has paid, at most, each time for longer: to
look takes a tenth of a small model's step."""
DECIDED_STEPS = 4
"""For which a choice stands while the same requests decode: it costs as much as a pass of a small
model."""

_TEMPERATURES = (0.01, 0.4, 0.6, 0.8, 0.95)
"""Between which acceptance is told apart: the wider the distributions, the less two draws agree."""
_CHANCE_BEGIN = 0.6
_WATCHING_RATE = 0.2
_WEIGHT_BEGIN = 8.0
_WEIGHT_ALL = 6.0
_MOST_ALL = 128.0
_MOST_REQUEST = 24.0
"""Comparisons of a place that are remembered: what is not drafted is not compared either, so that
of a text that has become easier only tries would be heard for long."""


class DraftRoom(NamedTuple):
    """A request of a step that may have drafts."""

    request: Request
    room: int
    """Drafts at most."""
    num_free: int = 0
    """Of a guess that costs nothing and is there already."""
    hope: float = 0.0
    """How many of them are expected to be right."""


class _Choice(NamedTuple):
    """A choice for a request: so many drafts, of which `hope` are expected to be right."""

    num_drafts: int
    hope: float


class _Shares:
    """Right ones of comparisons, by place."""

    def __init__(self, places: int, most: float) -> None:
        self._most = most
        self.right = [0.0] * places
        self.all = [0.0] * places

    def note(self, place: int, *, right: bool) -> None:
        self.right[place] += right
        self.all[place] += 1.0
        if self.all[place] > self._most:
            self.right[place] /= 2
            self.all[place] /= 2


class _History:
    """The state of one request."""

    def __init__(self, places: int, known: _Shares) -> None:
        self.shares = _Shares(places, _MOST_REQUEST)
        self.known = known
        """Of all requests like it."""
        self.start = 0
        """The place of the first of `drafts`."""
        self.drafts: Sequence[int] = ()
        """The last ones, whose tokens have not come yet."""


class ModelDrafts:
    """The draft model of one engine and what was learned of it."""

    def __init__(
        self,
        model: PassModel,
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
        self._shares = [_Shares(most, _MOST_ALL) for _ in range(1 + len(_TEMPERATURES))]
        self._histories: dict[Request, _History] = {}
        self._decided: list[Request] = []
        """The requests of the last choice."""
        self._choices: dict[Request, _Choice] = {}
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
        self._tries = Tries(model, costs, self._passes, self._reading)
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
        if not self._adaptive:
            return self._drafts([(each.request, min(each.room, self._most)) for each in wanted])
        if self._costs.num_seen < FIRST_PLAIN_STEPS:
            return {}
        decided = [each.request for each in wanted]
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
            (each.request, min(choice.num_drafts, each.room))
            for each in wanted
            if (choice := self._choices.get(each.request)) is not None and each.hope < choice.hope
        ]
        if chosen:
            self._next_rest = 1
            self._watch(None)
            # Of others it would be learned how often drafts of too little are right.
            chosen = [each for each in chosen if not self._model.num_missing(each[0])]
        else:
            chosen = self._tried(batch, wanted, most, step_s)
        return self._drafts(chosen, self._tokens_within(step_s)) if chosen else {}

    def note(self, request: Request, num_before: int, token_ids: Sequence[int]) -> None:
        """A row gave a request these tokens, which had so many before."""
        history = self._histories.get(request)
        if history is None or not history.drafts:
            return
        drafts, history.drafts = history.drafts, ()
        if history.start != num_before:
            return
        for place, (draft, token_id) in enumerate(zip(drafts, token_ids, strict=False)):
            right = draft == token_id
            history.known.note(place, right=right)
            history.shares.note(place, right=right)
            if not right:
                return

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
        self._reading.note_step(gained - self.reading_s, self._step_s)
        self._tries.note_step(seconds, gained_s)

    def forget(self, request: Request) -> None:
        """The request has ended."""
        self._histories.pop(request, None)
        self._tries.forget(request)

    def _chosen(self, batch: int, wanted: Sequence[DraftRoom], most: int) -> dict[Request, _Choice]:
        """The requests for which drafts pay, and how many; none where they do not."""
        costs = self._costs
        self._at_risk_s = 0.0
        free_count = sum(each.num_free for each in wanted)
        free_hope = sum(each.hope for each in wanted)
        plain = (batch + free_hope) / costs.seconds(batch, batch + free_count)
        best, best_count, taking = LEAST_GAIN * plain, 0, list[tuple[float, int]]()
        largest = min(batch + most, max(2 * costs.largest_seen, batch + 1))
        plain_s = costs.seconds(batch, batch)
        most_s = plain_s * (1.0 + self._account.steps)
        hopes = [self._hopes(each) for each in wanted]
        token_s = 1.0 / plain
        for count in range(1, self._most + 1):
            # A pass is shared by all that take part in it.
            num_passes = self._model.num_passes(count)
            share = num_passes * self._pass_s(len(wanted)) / len(wanted) / token_s
            gains = (
                (hope[min(count, len(hope)) - 1] - each.hope, at)
                for at, (each, hope) in enumerate(zip(wanted, hopes, strict=True))
                if hope
            )
            ranked = sorted((gain for gain in gains if gain[0] > share), reverse=True)
            tokens, hope = batch + free_count, batch + free_hope
            for num_taking, (more, at) in enumerate(ranked, 1):
                each = wanted[at]
                tokens += min(count, each.room) - each.num_free
                hope += more
                # What a size costs that is far beyond all that were seen is not known.
                if tokens > largest:
                    break
                seconds = costs.seconds(batch, tokens) + num_passes * self._pass_s(num_taking)
                seconds += self._watching_s
                if hope / seconds > best and seconds <= most_s:
                    best = hope / seconds
                    best_count, taking = count, ranked[:num_taking]
                    self._at_risk_s = seconds - plain_s
        self.gain = max(1.0, best / plain) if taking else 1.0
        chosen = {
            wanted[at].request: _Choice(best_count, more + wanted[at].hope) for more, at in taking
        }
        if not chosen:
            return chosen
        # Of each token, what is spared of the time that it takes without.
        spared_s = (1.0 / plain - 1.0 / best) * batch
        read_s = self._passes.seconds_per_token(plain_s)
        return {
            request: choice
            for request, choice in chosen.items()
            if (lag := self._model.lag(request)) <= FEW_TOKENS
            or (
                self._reading.steps > 0
                and lag * read_s
                < spared_s * min(EXPECTED_TOKENS, request.max_len - len(request.token_ids))
            )
        }

    def _rest(self) -> None:
        """Nothing pays: look for nothing for a while, each time for longer. What drafts are made of
        costs each step something, and is had again where it is wanted."""
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
        request = self._tries.next_request([each.request for each in wanted])
        room = next(each.room for each in wanted if each.request is request)
        count = min(TRY_DRAFTS, room, self._most, most)
        verdict = self._tries.ask(request, batch, count, step_s)
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
        self, chosen: Sequence[tuple[Request, int]], most_read: int | None = None
    ) -> dict[Request, list[int]]:
        reads = sum(lag > FEW_TOKENS for request, _ in chosen if (lag := self._model.lag(request)))
        if not self._passes.num_seen:
            for each in self._model.passes:  # before the first guess, those of its warm-up
                self._passes.note(each.num_tokens, each.seconds)
        found = self._model.guess(chosen, most_read)
        passes = self._model.passes
        for each in passes:
            self._passes.note(each.num_tokens, each.seconds)
            self.seconds += each.seconds
        if reads and passes:
            # As if those that are read had been at hand.
            usual_s = self._pass_s(len(chosen)) if found else 0.0
            self.reading_s = max(0.0, passes[0].seconds - usual_s)
        for request, drafts in found.items():
            history = self._history(request)
            history.start, history.drafts = len(request.token_ids), drafts
        return found

    def _hopes(self, each: DraftRoom) -> list[float]:
        """Of k drafts, how many are expected to be right, for k of 1 to what there is room for."""
        history = self._history(each.request)
        own, known = history.shares, history.known
        hopes, hope, reached, prior = list[float](), 0.0, 1.0, _CHANCE_BEGIN
        for place in range(min(each.room, self._most)):
            prior = (known.right[place] + _WEIGHT_BEGIN * prior) / (
                known.all[place] + _WEIGHT_BEGIN
            )
            reached *= (own.right[place] + _WEIGHT_ALL * prior) / (own.all[place] + _WEIGHT_ALL)
            hope += reached
            hopes.append(hope)
        return hopes

    def _pass_s(self, num_requests: int) -> float:
        return self._passes.seconds_or(
            self._costs.seconds(num_requests, num_requests), num_requests
        )

    def _tokens_within(self, seconds: float) -> int:
        """Tokens that are read in about the time of a step."""
        return min(
            128, max(16, int(seconds / self._passes.seconds_per_token(self._costs.seconds(1, 1))))
        )

    def _history(self, request: Request) -> _History:
        history = self._histories.get(request)
        if history is None:
            like_it = self._shares[bisect_right(_TEMPERATURES, request.params.temperature)]
            history = self._histories[request] = _History(self._most, like_it)
        return history
