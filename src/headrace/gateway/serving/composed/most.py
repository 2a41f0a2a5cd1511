"""The most that a composed model may use besides the answer that is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headrace.gateway.accounts.caller import Demand
from headrace.gateway.routing.decision import Candidate


class Most(NamedTuple):
    """An upper bound on what calls of models may use."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_nusd: int | None = 0
    """None if it is unknown."""
    asked: tuple[str, ...] = ()
    """Names of the models, as in the configuration."""
    candidates: tuple[Candidate, ...] = ()
    """Targets that may serve those models, in no order."""

    def __add__(self, other: object) -> Most:
        """The sum of two bounds; its cost is unknown if either is."""
        assert isinstance(other, Most)
        known = self.cost_nusd is not None and other.cost_nusd is not None
        return Most(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            (self.cost_nusd or 0) + (other.cost_nusd or 0) if known else None,
            self.asked + other.asked,
            self.candidates + other.candidates,
        )

    def added_to(self, answer: Demand) -> Demand:
        """The demand of everything, where `answer` is that of the answer alone."""
        cost = None
        if answer.most_cost_nusd is not None and self.cost_nusd is not None:
            cost = answer.most_cost_nusd + self.cost_nusd
        return msgspec.structs.replace(
            answer,
            input_tokens=answer.input_tokens + self.input_tokens,
            most_output_tokens=answer.most_output_tokens + self.output_tokens,
            most_cost_nusd=cost,
        )


NOTHING = Most()


def dearest(each: Sequence[Most]) -> Most:
    """A bound that covers any one of them."""
    costs = [demand.cost_nusd for demand in each]
    known = [cost for cost in costs if cost is not None]
    return Most(
        max((demand.input_tokens for demand in each), default=0),
        max((demand.output_tokens for demand in each), default=0),
        max(known, default=0) if len(known) == len(costs) else None,
        tuple(name for demand in each for name in demand.asked),
        tuple(candidate for demand in each for candidate in demand.candidates),
    )
