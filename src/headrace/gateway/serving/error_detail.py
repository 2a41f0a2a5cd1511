"""How much of a failure that is not its own a client reads.

The ledger, the log and the admin page have the whole message: addresses, targets, and what an
operator can do. Whoever holds a key of the gateway may be a stranger to all of that.
"""

from __future__ import annotations

from typing import Literal

from headrace.gateway.accounts.caller import ADMIN, MASTER, Caller
from headrace.gateway.serving.target_failures import AllTargetsFailedError
from headrace.protocol.neutral.failure import FailureKind

ErrorDetail = Literal["full", "names", "none"]

_KINDS: dict[FailureKind, str] = {
    "rate_limit": "the model has no free capacity",
    "overloaded": "the model is overloaded",
    "timeout": "the model did not answer in time",
}
_OTHER = "the model cannot be reached"


def detail_for(setting: ErrorDetail | None, caller: Caller | None) -> ErrorDetail:
    """What a caller reads: everything with the master key; by default everything where no keys are
    required, too, and kinds alone with a client's key."""
    if caller in (MASTER, ADMIN):
        return "full"
    if setting is not None:
        return setting
    return "full" if caller is None else "none"


def shortened(error: AllTargetsFailedError, detail: ErrorDetail) -> str | None:
    """The message with so much detail; None for the whole, which faults of the request itself
    always have."""
    if detail == "full" or error.is_clients:
        return None
    failure = error.failure
    if detail == "names":
        tried = [f"{attempt.target}: {_kind_of(attempt.failure.kind)}" for attempt in error.tried]
        tried += [
            f"{skipped.target}: {skipped.reason if skipped.by_request else 'not available'}"
            for skipped in error.left_out
        ]
        message = f"no target answered: {'; '.join(tried)}"
    else:
        kind = failure.kind if error.tried else "rate_limit"  # nothing was sent: no target is free
        message = f"no answer: {_KINDS.get(kind, _OTHER)}"
        reasons = dict.fromkeys(skipped.reason for skipped in error.left_out if skipped.by_request)
        message += "".join(f"; a target was skipped: {reason}" for reason in reasons)
    if failure.retry_after_s:
        message += f"; try again in {failure.retry_after_s:.0f} s"
    return f"{message} (the gateway's log has the details under this request's id)"


def _kind_of(kind: FailureKind) -> str:
    return kind.replace("_", " ")
