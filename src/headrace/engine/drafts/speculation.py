"""How many guessed tokens each request's row gets in a step, so that none is slower than without.

A step of n tokens costs c(n) (step_costs.py), and gives one token of each request that decodes and
the drafts that are right. A row's drafts are taken where they raise what the step gives for its
cost:

    gain(k) = (T + S(k)) / c(n + k),   S(k) = sum of P(j) for j of 1 to k

T tokens and n places of the step before this row, P(j) the chance that its first j drafts are all
right (acceptance.py). The k of the highest gain is taken if that is above 1.03 times gain(0): what
is gained by less is within the error of both estimates. Requests come in their order of rank, each
with what those before it have left; so at large batches, where a further place costs what it
gives, nobody drafts, and nobody has to say where that is.

A guess costs nothing but looking it up, so that one is made whether it is used or not, and judged
by what came. For a request whose guesses are of no use it is made less and less often.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.engine.drafts.acceptance import Acceptance, Shares
from headrace.engine.drafts.source import DraftSource, Guess
from headrace.engine.drafts.step_costs import StepCosts
from headrace.engine.request import Request

LEAST_GAIN = 1.03
MOST_IDLE_TOKENS = 4
"""Tokens for which a request whose guesses were of no use is left alone, at most."""
PLAIN_STEP_EVERY = 64
"""Steps in a row in which somebody drafts, after which one is left without: what that costs has to
be known."""


class _Pending(NamedTuple):
    """A guess whose tokens have not come yet."""

    source: int
    start: int
    """The place of its first token."""
    guess: Guess


class _History:
    """What is known of one request."""

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
        self, sources: Sequence[DraftSource], *, most_drafts: int, adaptive: bool = True
    ) -> None:
        """sources: in the order in which they are asked. most_drafts: of a row. adaptive: take as
        many as pay; otherwise as many as there are."""
        self._sources = tuple(sources)
        self._most = most_drafts
        self._adaptive = adaptive
        self._acceptance = [Acceptance() for _ in sources]
        self._costs = StepCosts()
        self._histories: dict[Request, _History] = {}
        self._places = 0
        self._expected = 0.0
        self._steps_with_drafts = 0
        self._has_drafted = False
        self._is_plain = False

    def begin_step(self, num_tokens: int) -> None:
        """A step begins in which so many requests decode, a token each."""
        self._places = num_tokens
        self._expected = float(num_tokens)
        self._steps_with_drafts = self._steps_with_drafts + 1 if self._has_drafted else 0
        self._is_plain = self._steps_with_drafts >= PLAIN_STEP_EVERY
        self._has_drafted = False

    def drafts(self, request: Request, room: int) -> Sequence[int]:
        """The drafts of a row, at most so many; empty where none pay."""
        if room < 1 or not request.params.speculation:
            return ()
        history = self._histories.get(request)
        if history is None:
            shares = [acceptance.begin() for acceptance in self._acceptance]
            history = self._histories[request] = _History(shares)
        length = len(request.token_ids)
        if length < history.idle_until:
            return ()
        most = min(room, self._most)
        pending = self._guess(request, history, most)
        history.pending = pending
        if pending is None:
            self._rest(history, length)
            return ()
        if not self._adaptive:
            return pending.guess.token_ids
        count = self._count(pending, history)
        if not count:
            self._rest(history, length)
            return ()
        history.idle_tokens = 0
        if self._is_plain:
            return ()
        return pending.guess.token_ids[:count]

    def note(self, request: Request, num_before: int, token_ids: Sequence[int]) -> None:
        """A row gave a request these tokens, which had so many before."""
        history = self._histories.get(request)
        if history is None or history.pending is None:
            return
        source, start, guess = history.pending
        history.pending = None
        if start == num_before:
            own = history.shares[source]
            self._acceptance[source].note(own, guess.match_tokens, guess.token_ids, token_ids)

    def note_step(self, num_tokens: int, seconds: float) -> None:
        """A step that only decoded took so long."""
        self._costs.note(num_tokens, seconds)

    def forget(self, request: Request) -> None:
        """The request has ended."""
        if self._histories.pop(request, None) is not None:
            for source in self._sources:
                source.forget(request)

    def _guess(self, request: Request, history: _History, most: int) -> _Pending | None:
        """The guess that promises most of all sources'."""
        best, promised = None, 0.0
        for number, source in enumerate(self._sources):
            guess = source.guess(request, most)
            if guess is None:
                continue
            chances = self._chances(number, history, guess)
            if (hope := sum(chances)) > promised:
                best, promised = _Pending(number, len(request.token_ids), guess), hope
        return best

    def _chances(self, source: int, history: _History, guess: Guess) -> list[float]:
        return self._acceptance[source].chances(
            history.shares[source], guess.match_tokens, len(guess.token_ids)
        )

    def _count(self, pending: _Pending, history: _History) -> int:
        """How many drafts of a guess pay; they are entered in the step."""
        places, expected, costs = self._places, self._expected, self._costs
        best, most_gained, most_expected = 0, LEAST_GAIN * expected / costs.of(places), expected
        for chance in self._chances(pending.source, history, pending.guess):
            expected += chance
            places += 1
            gained = expected / costs.of(places)
            if gained > most_gained:
                best, most_gained, most_expected = places - self._places, gained, expected
        if best and not self._is_plain:
            self._places += best
            self._expected = most_expected
            self._has_drafted = True
        return best

    def _rest(self, history: _History, length: int) -> None:
        """Leave a request alone for a while, each time for longer."""
        history.idle_tokens = min(MOST_IDLE_TOKENS, 2 * history.idle_tokens + 1)
        history.idle_until = length + history.idle_tokens
