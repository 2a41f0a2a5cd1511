"""Which targets a request is too long for, as far as an estimate shows."""

from __future__ import annotations

import math

from headrace.gateway.routing.decision import Candidate
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.targets.target import Target


def surely_too_long(target: Target, ask: RoutingQuery) -> str | None:
    """Why a target cannot take the prompt even at the lowest count of tokens; None if it may. The
    output does not count: some providers end an answer where the context ends.
    """
    most = target.context_tokens
    # A target with room for the estimate needs no closer look.
    if most is None or ask.input_tokens <= most or (least := ask.least_tokens) <= most:
        return None
    return f"the prompt has at least {least:,} tokens and it takes {most:,}"


def surely_fitting_first(found: list[Candidate], ask: RoutingQuery) -> list[Candidate]:
    """The candidates, those last that it may be too long for; their provider decides that."""
    tokens = _estimated(ask)
    fitting: list[Candidate] = []
    doubtful: list[Candidate] = []
    for candidate in found:
        most = candidate.target.context_tokens
        if tokens <= (math.inf if most is None else most):
            fitting.append(candidate)
            continue
        reason = f"last, as the request needs about {tokens:,} tokens and it takes {most:,}"
        doubtful.append(candidate._replace(reasons=(reason, *candidate.reasons)))
    return fitting + doubtful


def _estimated(ask: RoutingQuery) -> int:
    return ask.input_tokens + (ask.most_output_tokens or 0)
