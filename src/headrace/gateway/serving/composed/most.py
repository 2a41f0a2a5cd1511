"""What a model made of others may take besides the answer that is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headrace.gateway.accounts.caller import Demand
from headrace.gateway.routing.decision import Candidate


class Most(NamedTuple):
    """cost_nusd: None where nobody knows. asked: names of models as the file has them. candidates:
    who may be asked by those, in no order."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_nusd: int | None = 0
    asked: tuple[str, ...] = ()
    candidates: tuple[Candidate, ...] = ()

    def __add__(self, other: object) -> Most:
        """Both."""
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
        """What is held for all of it, where `answer` is for the answer alone."""
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
    """What covers any one of them."""
    costs = [one.cost_nusd for one in each]
    known = [one for one in costs if one is not None]
    return Most(
        max((one.input_tokens for one in each), default=0),
        max((one.output_tokens for one in each), default=0),
        max(known, default=0) if len(known) == len(costs) else None,
        tuple(name for one in each for name in one.asked),
        tuple(candidate for one in each for candidate in one.candidates),
    )
