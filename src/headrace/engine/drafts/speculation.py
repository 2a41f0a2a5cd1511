"""How many guessed tokens each request's row gets in a step, so that none is slower than without.

A step of B requests and n tokens costs c(B, n) (step_costs.py), and gives one token of each request
that decodes and the drafts that are right. P(j) is the chance that a request's first j drafts are
all right (acceptance.py). Of all drafts of all requests, the likeliest m are taken, where m makes
the most of

    (B + sum of the m greatest P) / (c(B, B + m) + l)

if that is above B / c(B, B), what steps without drafts give; P falls with j, so that these are the
first drafts of each request. At large batches, where a further place costs what it gives, nobody
drafts, and nobody has to say where that is. Sizes of steps that were not seen are tried by and by,
twice the largest at most.

l is what looking the guesses up took. It is spent already, but where drafts gain less than that
the requests do better without: then all rest, and guess less and less often. So no cost c includes
it. A guess is judged by what came, whether it is used or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.engine.drafts.acceptance import Acceptance, Shares
from headrace.engine.drafts.gain_account import MOST as FULL
from headrace.engine.drafts.gain_account import GainAccount
from headrace.engine.drafts.passes.draft_chain import DraftChain
from headrace.engine.drafts.passes.draft_lengths import DraftRoom
from headrace.engine.drafts.passes.draft_policy import DraftPolicy
from headrace.engine.drafts.source import DraftSource, Guess
from headrace.engine.drafts.step_costs import FIRST_PLAIN_STEPS, StepCosts
from headrace.engine.request import Request

LEAST_GAIN = 1.02
"""What is gained by less is within the error of both estimates."""
MOST_IDLE_TOKENS = 4
"""Tokens for which a request whose guesses were of no use is left alone, at most; of more requests
that decode together as many as there are, so that a step looks up one guess in vain."""
MOST_IDLE_OF_ALL = 16
"""The same, at any batch: a text that begins to repeat itself has to be noticed."""
PLAIN_STEP_EVERY = 32
"""Steps in a row in which somebody drafts, after which one is left without: what that costs has to
be known. Where drafts are believed to gain g times as much it is left (g - 1) * PLAIN_STEP_MORE
times as seldom: it costs more then, and an error is less likely to matter."""
PLAIN_STEP_MORE = 6.0
EXPLORE_EVERY = 16
"""Steps with guesses, after which more drafts are taken than are believed to pay best: a tenth of
one step is lost where the belief was right."""
MOST_OVERRUN = 3.0
"""Times what a step of its size takes, as far as one is booked as lost."""


class DraftTotals(NamedTuple):
    """Totals of the steps with drafts whose time was compared with one without."""

    steps: int = 0
    tokens: float = 0.0
    """Of a request, over the steps: 1 of each, and the drafts that were right over the requests."""
    seconds: float = 0.0
    """That they took, with making drafts."""
    plain_s: float = 0.0
    """That as many of so many requests take without drafts, as such steps did lately."""


class _Pending(NamedTuple):
    """A guess whose tokens have not come yet."""

    source: int
    start: int
    """The place of its first token."""
    guess: Guess
    chances: Sequence[float]
    """That its first drafts are all right, for one and more of them."""


class _History:
    """The state of one request."""

    def __init__(self, shares: list[Shares]) -> None:
        self.shares = shares
        """Of each source."""
        self.pending: _Pending | None = None
        self.idle_until = 0
        """The length before which no guess is made."""
        self.idle_tokens = 0


class Speculation:
    """The sources of guesses of one engine, and what was learned of them and of its steps."""

    def __init__(
        self,
        sources: Sequence[DraftSource],
        *,
        most_drafts: int,
        adaptive: bool = True,
        model: DraftChain[Any] | None = None,
        most_of_model: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """sources: in the order in which they are asked. most_drafts: of a row. adaptive: take as
        many as pay; otherwise as many as there are. model: drafts where sources have nothing.
        clock: of what looking up takes, in seconds."""
        self._sources = tuple(sources)
        self.model = model
        self._most = most_drafts
        self._adaptive = adaptive
        self._acceptance = [Acceptance() for _ in sources]
        self.costs = StepCosts()
        """Of steps, as far as they are known."""
        self.compared = DraftTotals()
        """What drafts came to since the start."""
        self._histories: dict[Request, _History] = {}
        self._taken: dict[Request, Sequence[int]] = {}
        """The drafts of the step that began."""
        self._since_plain = 0.0
        """Steps with drafts since one without, those that gain much counted as less."""
        self._gain = 1.0
        """Of the drafts that were chosen last, as it is believed."""
        self._account = GainAccount()
        self._since_explored = 0
        """Steps with guesses since more drafts were taken than are believed to pay best."""
        self._num_given = 0
        """Tokens beyond a request's first that the step gave."""
        self._batch = 1
        """Requests that decode in the step that began."""
        self._clock = clock
        self._looking_s = 0.0
        """Seconds that guesses of the step that began took."""
        self._of_model: DraftPolicy | None = None
        if model is not None:
            self._of_model = DraftPolicy(
                model,
                self.costs,
                most=most_of_model,
                adaptive=adaptive,
                account=self._account,
            )

    def begin_step(
        self, requests: Sequence[tuple[Request, int]], batch: int, most: int = 1 << 30
    ) -> None:
        """A step begins in which `batch` requests decode, of which these may have so many drafts
        each, and at most `most` together."""
        begun_s = self._clock() if requests else 0.0
        self._looking_s = 0.0
        self._taken.clear()
        self._num_given = 0
        self._batch = batch
        for source in self._sources:
            source.begin_step()
        if self._of_model is not None:
            self._of_model.begin_step()
        hopes: dict[Request, float] = {}
        guesses = [
            (request, pending, history)
            for request, room in requests
            if request.params.speculation
            if (history := self._history(request)).idle_until <= len(request.token_ids)
            if (pending := self._guess(request, history, min(room, self._most))) is not None
        ]
        if not self._adaptive:
            for request, pending, history in guesses:
                history.idle_tokens = 0
                self._taken[request] = pending.guess.token_ids
            self._add_of_model(requests, hopes, batch, most)
            return
        chances = [pending.chances for _, pending, _ in guesses]
        counts = self._counts(batch, most, chances, begun_s)
        for (request, pending, history), count, own in zip(guesses, counts, chances, strict=True):
            if count:
                history.idle_tokens = 0
                self._taken[request] = pending.guess.token_ids[:count]
                hopes[request] = sum(own[:count])
            else:
                self._rest(history, len(request.token_ids))
        if guesses:
            self._looking_s = self._clock() - begun_s
        few = self.costs.num_seen < FIRST_PLAIN_STEPS
        if few or not self.costs.knows(batch) or self._since_plain > PLAIN_STEP_EVERY:
            self._since_plain = 0.0
            self._taken.clear()
            return
        self._add_of_model(requests, hopes, batch, most)
        gain = self._gain if self._of_model is None else max(self._gain, self._of_model.gain)
        counted = 1 / max(1.0, PLAIN_STEP_MORE * (gain - 1))
        self._since_plain = self._since_plain + counted if self._taken else 0.0

    def _add_of_model(
        self,
        requests: Sequence[tuple[Request, int]],
        hopes: Mapping[Request, float],
        batch: int,
        most: int,
    ) -> None:
        """Take drafts of the model where they promise more than what is taken already. hopes: how
        many of that are expected to be right."""
        if self._of_model is None or (self._adaptive and self._of_model.rests(batch)):
            return
        taken = self._taken
        wanted = [
            DraftRoom(request, room, len(taken.get(request, ())), hopes.get(request, 0.0))
            for request, room in requests
            if request.params.speculation and (self._adaptive or request not in taken)
        ]
        taken |= self._of_model.guess(batch, wanted, most)

    def drafts(self, request: Request, room: int) -> Sequence[int]:
        """The drafts of a row of the step that began, at most so many; empty where none pay."""
        taken = self._taken.get(request, ())
        return taken if len(taken) <= room else taken[:room]

    def note(self, request: Request, num_before: int, token_ids: Sequence[int]) -> None:
        """A row gave a request these tokens, which had so many before."""
        self._num_given += len(token_ids) - 1
        if self._of_model is not None:
            self._of_model.note(request, num_before, token_ids)
        history = self._histories.get(request)
        if history is None or history.pending is None:
            return
        source, start, guess, _ = history.pending
        history.pending = None
        if start == num_before:
            own = history.shares[source]
            self._acceptance[source].note(own, guess.match_tokens, guess.token_ids, token_ids)

    def note_step(self, batch: int, num_tokens: int, seconds: float) -> None:
        """A step that only decoded, of so many requests and tokens, took so long."""
        model, costs = self._of_model, self.costs
        drafting_s = 0.0 if model is None else model.seconds
        watching_s = 0.0 if model is None else model.take_watching_s()
        looking_s = self._looking_s
        costs.note(batch, num_tokens, seconds - drafting_s - watching_s - looking_s)
        plain_s = costs.plain_seconds(batch)
        if (num_tokens == batch and not drafting_s) or plain_s <= 0:
            self._account.note_plain(watching_s / plain_s if plain_s > 0 else 0.0)
            if model is not None:
                model.note_step(seconds)
            return
        # A step that was disturbed by something else took so long without its drafts too.
        usual_s = costs.seconds(batch, num_tokens) + drafting_s + watching_s + looking_s
        booked_s = min(seconds, MOST_OVERRUN * usual_s)
        if model is not None and not model.is_try:
            booked_s -= model.reading_s
        gained, spent = self._num_given / batch, booked_s / plain_s - 1
        so_far = self.compared
        self.compared = DraftTotals(
            so_far.steps + 1,
            so_far.tokens + 1 + gained,
            so_far.seconds + seconds,
            so_far.plain_s + plain_s,
        )
        self._account.note(gained, spent)
        if model is not None:
            model.note_step(seconds, (gained - spent) * plain_s)

    def clear(self) -> None:
        """Drop what sources keep of requests that have ended."""
        for source in self._sources:
            source.clear()
        if self.model is not None:
            self.model.clear()

    def forget(self, request: Request) -> None:
        """The request has ended."""
        if self.model is not None:
            self.model.forget(request)
        if self._of_model is not None:
            self._of_model.forget(request)
        if self._histories.pop(request, None) is not None:
            for source in self._sources:
                source.forget(request)

    def _history(self, request: Request) -> _History:
        history = self._histories.get(request)
        if history is None:
            shares = [acceptance.begin() for acceptance in self._acceptance]
            history = self._histories[request] = _History(shares)
        return history

    def _guess(self, request: Request, history: _History, most: int) -> _Pending | None:
        """The guess that promises most of all sources'."""
        length = len(request.token_ids)
        best, promised = None, 0.0
        for number, source in enumerate(self._sources):
            guess = source.guess(request, most)
            if guess is None:
                continue
            chances = self._acceptance[number].chances(
                history.shares[number], guess.match_tokens, len(guess.token_ids)
            )
            hope = sum(chances)
            if hope > promised:
                best, promised = _Pending(number, length, guess, chances), hope
        history.pending = best
        if best is None:
            self._rest(history, length)
        return best

    def _counts(
        self, batch: int, most: int, chances: Sequence[Sequence[float]], begun_s: float
    ) -> list[int]:
        """How many drafts of each guess pay together, with what looking them up took since then."""
        costs = self.costs
        counts = [0] * len(chances)
        if not counts:
            return counts
        ranked = sorted(
            ((chance, at) for at, own in enumerate(chances) for chance in own), reverse=True
        )
        largest = min(max(2 * costs.largest_seen, batch + 1), batch + most)
        best, hope = 0, float(batch)
        plain = costs.of(batch, batch)
        looking = (self._clock() - begun_s) / costs.unit_s if costs.unit_s else 0.0
        most_gained = LEAST_GAIN * hope / plain
        most_cost = plain * (1 + max(0.0, self._account.steps))
        for count, (chance, _) in enumerate(ranked[: largest - batch], 1):
            hope += chance
            cost = costs.of(batch, batch + count)
            if cost > most_cost:
                break
            gained = hope / (cost + looking)
            if gained > most_gained:
                best, most_gained = count, gained
        more = self._explored(best, min(len(ranked), largest - batch))
        for _, at in ranked[:more]:
            counts[at] += 1
        self._gain = most_gained * plain / batch if best else 1.0
        return counts

    def _explored(self, best: int, most: int) -> int:
        """Drafts that are taken where `best` are believed to pay best: now and then twice as many,
        since one disturbed step makes a size look too expensive to be seen again."""
        self._since_explored += 1
        if not best or self._since_explored < EXPLORE_EVERY or self._account.steps < FULL:
            return best
        self._since_explored = 0
        return min(2 * best, most)

    def _rest(self, history: _History, length: int) -> None:
        """Leave a request alone for a while, each time for longer."""
        most = min(max(MOST_IDLE_TOKENS, self._batch), MOST_IDLE_OF_ALL)
        history.idle_tokens = min(most, 2 * history.idle_tokens + 1)
        history.idle_until = length + history.idle_tokens
