"""Who is asked, in which order, and who is not: what `gateway explain` prints."""

from __future__ import annotations

from typing import NamedTuple

from headrace.gateway.targets.target import Target


class Candidate(NamedTuple):
    """score: what it was ordered by, lower first, within model and order. reasons: for people.
    variant: of an A/B test, the side it belongs to."""

    target: Target
    model: str
    score: float
    reasons: tuple[str, ...]
    variant: str = ""


class LeftOut(NamedTuple):
    """A target that is not asked. for_s: how long that holds, None if it does not pass. too_long:
    whether the prompt surely is, for it. rate_limited: whether it is that too
    much was asked."""

    target: str
    model: str
    reason: str
    for_s: float | None = None
    too_long: bool = False
    rate_limited: bool = False


class Decision(NamedTuple):
    """candidates: in the order in which they are tried. assigned: the side that the first model
    gives the request to, "" where it has none; sides: of each model that has, its name and side."""

    candidates: tuple[Candidate, ...]
    left_out: tuple[LeftOut, ...]
    assigned: str = ""
    sides: tuple[tuple[str, str], ...] = ()
