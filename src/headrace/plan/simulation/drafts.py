"""Drafts of simulated requests: how many there are, and which of them are accepted.

The tokens of a simulated answer are all the same, so a draft that is right has that token and one
that is wrong has another. Whether it is right depends on the request, the position and the draft's
place alone, so a simulation gives the same however its steps fall.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from headrace.engine.drafts.proposer import Proposal
from headrace.engine.request import Request
from headrace.engine.sampling.sampler import uniform
from headrace.engine.scheduling.plan import Row
from headrace.plan.simulation.arrival import own_token

_WRONG = 1 << 62
"""An id that no prompt and no answer has."""


class Guesses:
    """The proposer of a replica whose requests have drafts."""

    def __init__(self, acceptance: Sequence[float]) -> None:
        """acceptance: of the first draft, of the second where the first is accepted, and so on; as
        many drafts as there are figures."""
        self._acceptance = tuple(acceptance)

    def propose(self, request: Request, most: int) -> Proposal:
        """As many drafts as there always are, the right ones first."""
        number, position = request.arrival, request.num_wanted
        accepted = 0
        for index, share in enumerate(self._acceptance):
            if uniform(number, index, position) >= share:
                break
            accepted += 1
        wrong = len(self._acceptance) - accepted
        return Proposal([own_token(number)] * accepted + [_WRONG] * wrong, is_certain=False)


def given_by(row: Row) -> list[int]:
    """The tokens that a row of a simulated request gives: its right drafts and one more."""
    if not row.samples:
        return []
    own = own_token(row.request.arrival)
    accepted = sum(1 for _ in takewhile(lambda token_id: token_id == own, row.drafts.token_ids))
    return [own] * (accepted + 1)
