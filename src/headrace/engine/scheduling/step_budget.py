"""What a step may compute: tokens, and where somebody waits for its end, a time by prediction.

A step keeps everybody waiting whose tokens it gives. While a request decodes, a step has a target:
the prompts beside it get as many tokens as are predicted to end by then. A prediction is a function
of what the step computes (`StepLoad`) and of rates that are handed in (`StepTimes`): the engine's
are measured (measured_times.py), a simulation's are the planner's, and nobody here has a clock.
Which tokens a step computes changes no answer, so that a wrong prediction costs time only.

The first prompt of a step gets LEAST_PROMPT_TOKENS whatever the prediction says, so that it comes
to its end however long decoding alone takes; so does the first of those that pass it, which would
else wait for its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from headrace.engine.scheduling.plan import Row

LEAST_PROMPT_TOKENS = 12
"""Of fewer each costs more: beside 16 streams of a 0.6B model at Q8_0 one took 10.1 ms at a depth
of 7,000 in chunks of 8, 8.1 in chunks of 12, 7.7 in chunks of 16 and 7.5 in chunks of 64."""


class StepLoad(NamedTuple):
    """The counts from which the time of a step follows."""

    decodes: int = 0
    """Requests that compute the last token they have."""
    drafts: int = 0
    """Tokens behind those."""
    context_tokens: int = 0
    """Tokens that decodes attend to, of all together."""
    prompt_tokens: int = 0
    pairs: int = 0
    """Pairs of a token of a prompt and a token that it attends to."""
    draft_pairs: int = 0
    """The same of drafts."""

    def with_prompt(self, start: int, count: int) -> StepLoad:
        """The same with tokens [start, start + count) of a prompt."""
        tokens = self.prompt_tokens + count
        return self._replace(prompt_tokens=tokens, pairs=self.pairs + pairs_of(start, count))


NO_LOAD = StepLoad()


class StepTimes(Protocol):
    """Rates of a machine."""

    def seconds(self, load: StepLoad) -> float:
        """What a step takes. It does not fall when a load grows."""
        ...


class StepLimit(NamedTuple):
    """A target of steps in which somebody decodes, and by which rates it is held."""

    target_s: float
    times: StepTimes


def pairs_of(start: int, count: int) -> int:
    """Pairs of tokens [start, start + count) and those that each attends to, itself among them."""
    return count * start + count * (count + 1) // 2


def load_of(rows: Iterable[Row]) -> StepLoad:
    """Of the rows of a step that is not completed yet."""
    decodes = drafts = context = tokens = pairs = draft_pairs = 0
    for row in rows:
        own = row.num_tokens - len(row.drafts.token_ids)
        if own == 1 and row.request.first_token_s is not None:
            decodes += 1
            context += row.start + 1
        else:
            tokens += own
            pairs += pairs_of(row.start, own)
        if own < row.num_tokens:
            drafts += row.num_tokens - own
            draft_pairs += pairs_of(row.start + own, row.num_tokens - own)
    return StepLoad(decodes, drafts, context, tokens, pairs, draft_pairs)


class StepBudget:
    """The rest of a step while it is planned: decodes take theirs first, then prompts."""

    def __init__(self, num_tokens: int, limit: StepLimit | None = None) -> None:
        """limit: of time, which holds where somebody decodes; None for none."""
        self.num_tokens = num_tokens
        self.is_short = False
        """Whether some prompt got fewer tokens than were left, for want of time."""
        self.load = NO_LOAD
        self._most = num_tokens
        self._limit = limit
        self._until_s: float | None = None
        self._has_prompt = False

    @property
    def seconds(self) -> float:
        """What the step is predicted to take; 0 where its time is not limited."""
        if self._limit is None or self._until_s is None:
            return 0.0
        return self._limit.times.seconds(self.load)

    def take(self, count: int) -> None:
        """So many tokens are planned, which are no prompt's."""
        self.num_tokens -= count

    def begin_prompts(self, load: StepLoad) -> None:
        """All that is no prompt's is planned, which is this."""
        self.load = load
        if self._limit is not None and load.decodes:
            self._until_s = self._limit.target_s

    @property
    def is_spent(self) -> bool:
        """Whether there is no room for a prompt wherever it begins."""
        if not self.num_tokens:
            return True
        if self._limit is None or self._until_s is None or not self._has_prompt:
            return False
        return self._limit.times.seconds(self.load.with_prompt(0, 1)) > self._until_s

    def room(self, start: int) -> int:
        """How many tokens a prompt may take of which `start` are computed."""
        most = self.num_tokens
        if self._limit is None or self._until_s is None or not most:
            return most
        times, load = self._limit.times, self.load
        enough = 0 if self._has_prompt else min(LEAST_PROMPT_TOKENS, most)
        if times.seconds(load.with_prompt(start, most)) <= self._until_s:
            return most
        too_many = most
        while too_many - enough > 1:
            middle = (enough + too_many) // 2
            if times.seconds(load.with_prompt(start, middle)) <= self._until_s:
                enough = middle
            else:
                too_many = middle
        return enough

    def take_prompt(self, start: int, wanted: int, count: int) -> None:
        """Tokens [start, start + count) of a prompt are planned; wanted: as many as it lacks."""
        if self._until_s is not None:
            self.is_short = self.is_short or count < min(wanted, self.num_tokens)
            self.load = self.load.with_prompt(start, count)
        self.num_tokens -= count
        self._has_prompt = self._has_prompt or count > 0

    def of_passing(self) -> StepBudget:
        """What prompts may take together that pass the first one: at most half of the tokens, those
        of decodes among them, and of the time that is left."""
        kept = min(self.num_tokens, self._most - self._most // 2)
        passing = StepBudget(self.num_tokens - kept, self._limit)
        passing.load = self.load
        if self._until_s is not None:
            spent_s = self.seconds
            passing._until_s = spent_s + max(0.0, self._until_s - spent_s) / 2
        return passing

    def join(self, passing: StepBudget, given: int) -> None:
        """Those that pass are planned; given: the tokens that they had at first."""
        self.num_tokens -= given - passing.num_tokens
        self.load = passing.load
        self.is_short = self.is_short or passing.is_short
