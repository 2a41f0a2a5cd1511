"""How many drafts of which requests make the most of a step's time.

A step of B requests gives a token each, and of a request with k drafts the sum of P(1) to P(k)
more, P(j) being the chance that its first j drafts are all right. It costs c(n) for its n tokens,
and a pass of the draft for each place, d(r) for r requests. Of all k the one is taken that makes
the most of

    (B + sum of what is expected) / (c(n) + k * d(r))

and none where that is not LEAST_GAIN above what k = 0 gives. Requests for which a guess that costs
nothing promises as much keep that. All of c, d and P are measured while serving: c by steps
(step_costs.py), d by the passes themselves (pass_costs.py), P by comparing drafts with what came
(draft_chances.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from headrace.engine.drafts.passes.draft_chances import DraftChances
from headrace.engine.drafts.passes.draft_generator import DraftGenerator
from headrace.engine.drafts.passes.pass_costs import PassCosts
from headrace.engine.drafts.step_costs import StepCosts
from headrace.engine.request import Request

LEAST_GAIN = 1.03
"""What is gained by less is within the error of the estimates."""


class DraftRoom(NamedTuple):
    """A request of a step that may have drafts."""

    request: Request
    room: int
    """Drafts at most."""
    num_free: int = 0
    """Of a guess that costs nothing and is there already."""
    hope: float = 0.0
    """How many of them are expected to be right."""


class Choice(NamedTuple):
    """A choice for a request: so many drafts, of which `hope` are expected to be right."""

    num_drafts: int
    hope: float


class StepChoice(NamedTuple):
    """The choices of a step, for those requests that have drafts."""

    choices: Mapping[Request, Choice]
    at_risk_s: float = 0.0
    """What the step loses where no draft comes."""
    gain: float = 1.0
    """As it is believed: tokens for the time, over none."""
    spared_s: float = 0.0
    """Of each token, of the time that it takes without."""


class DraftLengths:
    """The choice of numbers of drafts, by what is known of steps, passes and drafts."""

    def __init__(
        self, model: DraftGenerator, costs: StepCosts, passes: PassCosts, chances: DraftChances
    ) -> None:
        """costs: of the target's steps; passes: of the model's."""
        self._model = model
        self._costs = costs
        self._passes = passes
        self._chances = chances

    def best(
        self,
        batch: int,
        wanted: Sequence[DraftRoom],
        most: int,
        *,
        most_passes: int,
        most_lost_s: float,
        rich: float,
        watching_s: float,
    ) -> StepChoice:
        """The best choice for a step in which `batch` decode and that has room for at most so many
        drafts. most_passes: of the model; most_lost_s: what may be lost where no draft comes; rich:
        as of DraftChances.hopes; watching_s: what having drafts' makings ready takes."""
        costs = self._costs
        free_count = sum(room.num_free for room in wanted)
        free_hope = sum(room.hope for room in wanted)
        plain = (batch + free_hope) / costs.seconds(batch, batch + free_count)
        plain_s = costs.seconds(batch, batch)
        largest = min(batch + most, max(2 * costs.largest_seen, batch + 1))
        hopes = [self._chances.hopes(room.request, room.room, rich) for room in wanted]
        lengths = [self._chances.lengths(room.request, room.room) for room in wanted]
        best, best_count, taking, at_risk_s = LEAST_GAIN * plain, 0, list[tuple[float, int]](), 0.0
        for count in range(1, 1 + max(map(len, hopes))):
            # A pass is shared by all that take part in it.
            num_passes = self._model.num_passes(count)
            if num_passes > most_passes:
                break
            mean = fmean(own[min(num_passes, len(own)) - 1] for own in lengths if own)
            num_made = 1.0 + (num_passes - 1) * mean / num_passes
            share = num_made * self._pass_s(len(wanted)) / len(wanted) * plain
            gains = (
                (hope[min(count, len(hope)) - 1] - room.hope, at)
                for at, (room, hope) in enumerate(zip(wanted, hopes, strict=True))
                if hope
            )
            ranked = sorted((gain for gain in gains if gain[0] > share), reverse=True)
            tokens, hope = float(batch + free_count), batch + free_hope
            for num_taking, (more, at) in enumerate(ranked, 1):
                room = wanted[at]
                tokens += lengths[at][min(count, room.room) - 1] - room.num_free
                hope += more
                # What a size costs that is far beyond all that were seen is not known.
                if tokens > largest:
                    break
                # Of one request the rows of drafts end early; of many there is one that goes on.
                going = lengths[at][min(num_passes, room.room) - 1] / min(num_passes, room.room)
                num_made = 1.0 + (num_passes - 1) * (1.0 - (1.0 - going) ** num_taking)
                seconds = costs.seconds(batch, tokens) + num_made * self._pass_s(num_taking)
                seconds += watching_s
                if hope / seconds > best and seconds <= plain_s + most_lost_s:
                    best = hope / seconds
                    best_count, taking = count, ranked[:num_taking]
                    at_risk_s = seconds - plain_s
        if not taking:
            return StepChoice({})
        choices = {
            wanted[at].request: Choice(best_count, more + wanted[at].hope) for more, at in taking
        }
        spared_s = (1.0 / plain - 1.0 / best) * batch
        return StepChoice(choices, at_risk_s, max(1.0, best / plain), spared_s)

    def _pass_s(self, num_requests: int) -> float:
        step_s = self._costs.seconds(num_requests, num_requests)
        return self._passes.seconds_or(step_s, num_requests)
