"""Which targets a request is too long for, as far as an estimate tells."""

from __future__ import annotations

import math

from headrace.gateway.routing.decision import Candidate
from headrace.gateway.routing.query import RoutingQuery
from headrace.gateway.targets.target import Target


def surely_too_long(target: Target, ask: RoutingQuery) -> str | None:
    """What is said of a target that cannot take the prompt however few tokens it has; None of
    others. What it may write does not count: some providers end an answer where the context does.
    """
    most = target.context_tokens
    # What has room by the estimate is not looked at for it.
    if most is None or ask.input_tokens <= most or (least := ask.least_tokens) <= most:
        return None
    return f"the prompt has at least {least:,} tokens and it takes {most:,}"


def surely_fitting_first(found: list[Candidate], ask: RoutingQuery) -> list[Candidate]:
    """With those last for which it may be too long: whether it is, their provider says."""
    tokens = _estimated(ask)
    fitting: list[Candidate] = []
    doubtful: list[Candidate] = []
    for one in found:
        most = one.target.context_tokens
        if tokens <= (math.inf if most is None else most):
            fitting.append(one)
            continue
        said = f"last, as about {tokens:,} tokens are asked for and it takes {most:,}"
        doubtful.append(one._replace(reasons=(said, *one.reasons)))
    return fitting + doubtful


def _estimated(ask: RoutingQuery) -> int:
    return ask.input_tokens + (ask.most_output_tokens or 0)
