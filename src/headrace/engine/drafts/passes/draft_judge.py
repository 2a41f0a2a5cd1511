"""Where rows of drafts end, by the probabilities that the drafts have.

A draft is left out where its place in the step costs more than the chance that all up to it come,
and those rows go on whose next ones, together, give more than their places and the pass that they
share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.engine.drafts.passes.draft_chances import DraftChances
from headrace.engine.drafts.passes.draft_generator import JudgedDraft, Verdict
from headrace.engine.request import Request


class DraftJudge:
    """The judge of one step's drafts, called with those of each pass (`Judge`)."""

    def __init__(
        self, chances: DraftChances, place_price: float, pass_price: Callable[[int], float]
    ) -> None:
        """place_price: of a place in the step, in tokens that its time is worth; pass_price: of a
        pass of so many requests, in the same."""
        self._chances = chances
        self._place_price = place_price
        self._pass_price = pass_price
        self._reached: dict[Request, float] = {}
        """The chance that all drafts of a request so far come."""

    def __call__(self, drafts: Sequence[JudgedDraft]) -> list[Verdict]:
        """What is done about the drafts of a pass, at most one of a request."""
        price = self._place_price
        verdicts: list[Verdict] = []
        more: list[tuple[float, int]] = []
        for at, draft in enumerate(drafts):
            request = draft.request
            chance = self._reached.get(request, 1.0)
            chance *= self._chances.of(request, draft.probability)
            self._reached[request] = chance
            verdicts.append("drop" if chance < price else "end")
            next_one = chance * self._chances.at(request, draft.place + 1) - price
            if draft.more and chance >= price and next_one > 0:
                more.append((next_one, at))
        more.sort(reverse=True)
        best, hope, num_going = 0.0, 0.0, 0
        for count, (next_one, _) in enumerate(more, 1):
            hope += next_one
            if (gain := hope - self._pass_price(count)) > best:
                best, num_going = gain, count
        for _, at in more[:num_going]:
            verdicts[at] = "on"
        return verdicts
