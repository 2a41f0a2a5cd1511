"""The ledger's record of attempts that failed."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.gateway.serving.after_failure import Tried
from headrace.gateway.serving.entry import AttemptEntry

# Enough of a provider's message to be of use.
_MOST_CHARS = 300


def failed_attempts(tried: Iterable[Tried]) -> tuple[AttemptEntry, ...]:
    """Ledger entries in the order of the attempts; their start times are not recorded."""
    return tuple(
        AttemptEntry(
            target=attempt.target,
            began_ms=0.0,
            lasted_ms=attempt.after_s * 1e3,
            failure=attempt.failure.kind,
            status=attempt.failure.status,
            message=attempt.failure.message[:_MOST_CHARS],
        )
        for attempt in tried
    )
