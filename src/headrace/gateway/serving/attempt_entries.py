"""Attempts that failed, as the ledger keeps them."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.gateway.serving.after_failure import Tried
from headrace.gateway.serving.entry import AttemptEntry

# A provider's own words, as far as they help.
_MOST_CHARS = 300


def failed_attempts(tried: Iterable[Tried]) -> tuple[AttemptEntry, ...]:
    """In the order in which they were made; when each began is not kept."""
    return tuple(
        AttemptEntry(
            target=one.target,
            began_ms=0.0,
            lasted_ms=one.after_s * 1e3,
            failure=one.failure.kind,
            status=one.failure.status,
            message=one.failure.message[:_MOST_CHARS],
        )
        for one in tried
    )
