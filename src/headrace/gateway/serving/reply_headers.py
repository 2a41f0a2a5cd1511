"""What every reply of the gateway says of its way."""

from __future__ import annotations

import math

from headrace.gateway.routing.decision import Candidate
from headrace.protocol.neutral.dollars import NUSD_PER_USD
from headrace.protocol.neutral.failure import Failure

REQUEST_ID = "x-request-id"
PREFIX = "x-headrace-"
HEDGED = (PREFIX + "hedged", "1")
"""The answer is of a target that was asked besides the first, which was slow."""
_MOST_CHARS = 1000


def told_headers(
    request_id: str,
    candidate: Candidate | None,
    attempts: int,
    overhead_us: int,
    ignored: tuple[str, ...],
) -> list[tuple[str, str]]:
    """overhead_us: of the time until this head, what was not spent waiting for providers."""
    return [(REQUEST_ID, request_id), *way_headers(candidate, attempts, overhead_us, ignored)]


def way_headers(
    candidate: Candidate | None, attempts: int, overhead_us: int, ignored: tuple[str, ...]
) -> list[tuple[str, str]]:
    """The same without the request's id."""
    headers = [
        (PREFIX + "attempts", str(attempts)),
        (PREFIX + "overhead-us", str(overhead_us)),
    ]
    if candidate is not None:
        headers.append((PREFIX + "provider", candidate.target.provider.name))
        headers.append((PREFIX + "target", visible(candidate.target.name)))
        headers.append((PREFIX + "model", visible(candidate.model)))
    if ignored:
        headers.append(("x-ignored-params", visible(", ".join(ignored))))
    return headers


def variant_headers(assigned: str, answered: str) -> list[tuple[str, str]]:
    """The side of an A/B test that answered, and the one it stood in for. answered: "" where
    another model did."""
    headers = [(PREFIX + "variant", answered)] if answered else []
    if answered != assigned:
        headers.append((PREFIX + "variant-assigned", assigned))
    return headers


def cost_header(cost_nusd: int | None) -> tuple[str, str]:
    """Dollars with nine places, or that nobody knows the price."""
    if cost_nusd is None:
        return PREFIX + "cost-usd", "unknown"
    return PREFIX + "cost-usd", f"{cost_nusd // NUSD_PER_USD}.{cost_nusd % NUSD_PER_USD:09d}"


def retry_after(failure: Failure) -> list[tuple[str, str]]:
    """In whole seconds, never too early; nothing where waiting does not help. OpenAI's and
    Anthropic's packages try every 429 again, but for those that say that it is of no use."""
    headers = [("x-should-retry", "false")] if failure.kind == "payment" else []
    if failure.retry_after_s is not None:
        headers.append(("retry-after", str(max(1, math.ceil(failure.retry_after_s)))))
    return headers


def visible(text: str) -> str:
    """As much of it as a header holds. Names may hold anything; a header holds visible ASCII."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(one if " " <= one <= "~" else "?" for one in text)
    return text[:_MOST_CHARS]
