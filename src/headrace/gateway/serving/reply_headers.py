"""The headers of the gateway's replies."""

from __future__ import annotations

import math

from headrace.gateway.routing.decision import Candidate
from headrace.protocol.neutral.dollars import NUSD_PER_USD
from headrace.protocol.neutral.failure import Failure

REQUEST_ID = "x-request-id"
PREFIX = "x-headrace-"
HEDGED = (PREFIX + "hedged", "1")
"""The answer is from a hedge: the first target was slow."""
_MOST_CHARS = 1000


def told_headers(
    request_id: str,
    candidate: Candidate | None,
    attempts: int,
    overhead_us: int,
    ignored: tuple[str, ...],
) -> list[tuple[str, str]]:
    """Headers of a reply; `overhead_us` is the time not spent waiting for providers."""
    return [(REQUEST_ID, request_id), *way_headers(candidate, attempts, overhead_us, ignored)]


def way_headers(
    candidate: Candidate | None, attempts: int, overhead_us: int, ignored: tuple[str, ...]
) -> list[tuple[str, str]]:
    """The same without the request id."""
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
    """The A/B variant that answered, and the assigned one if it differs. `answered` is "" if
    another model answered."""
    headers = [(PREFIX + "variant", answered)] if answered else []
    if answered != assigned:
        headers.append((PREFIX + "variant-assigned", assigned))
    return headers


def dropped_headers(dropped: tuple[str, ...]) -> list[tuple[str, str]]:
    """What of the answer the client's dialect has no form for."""
    return [(PREFIX + "dropped", ", ".join(dropped))] if dropped else []


def cost_header(cost_nusd: int | None) -> tuple[str, str]:
    """Dollars with nine decimals, or "unknown"."""
    if cost_nusd is None:
        return PREFIX + "cost-usd", "unknown"
    return PREFIX + "cost-usd", f"{cost_nusd // NUSD_PER_USD}.{cost_nusd % NUSD_PER_USD:09d}"


def retry_after(failure: Failure) -> list[tuple[str, str]]:
    """Whole seconds, rounded up; nothing if waiting does not help. The OpenAI and Anthropic
    packages retry every 429 except those marked as not worth it."""
    headers = [("x-should-retry", "false")] if failure.kind == "payment" else []
    if failure.retry_after_s is not None:
        headers.append(("retry-after", str(max(1, math.ceil(failure.retry_after_s)))))
    return headers


def visible(text: str) -> str:
    """The text as far as a header can hold it: visible ASCII of limited length."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(char if " " <= char <= "~" else "?" for char in text)
    return text[:_MOST_CHARS]
