"""How much of a failure that is not its own a client reads.

The ledger, the log and the admin page have the whole message: addresses, targets, and what an
operator can do. Whoever holds a key of the gateway may be a stranger to all of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from headrace.gateway.accounts.caller import ADMIN, MASTER, Caller
from headrace.gateway.routing.decision import LeftOut
from headrace.gateway.serving.after_failure import CLIENTS, class_of
from headrace.gateway.serving.target_failures import AllTargetsFailedError, few
from headrace.protocol.neutral.failure import Failure, FailureKind

ErrorDetail = Literal["full", "names", "none"]

_KINDS: dict[FailureKind, str] = {
    "rate_limit": "the model has no free capacity",
    "overloaded": "the model is overloaded",
    "timeout": "the model did not answer in time",
    "not_found": "its provider does not have the model",
}
_OTHER = "the model cannot be reached"
_SEE = "(the gateway's log has the details under this request's id)"


def detail_for(setting: ErrorDetail | None, caller: Caller | None) -> ErrorDetail:
    """What a caller reads: everything with the master key; by default everything where no keys are
    required, too, and kinds alone with a client's key."""
    if caller in (MASTER, ADMIN):
        return "full"
    if setting is not None:
        return setting
    return "full" if caller is None else "none"


def shortened(error: AllTargetsFailedError, detail: ErrorDetail) -> str | None:
    """The message with so much detail; None for the whole, which a provider's verdict on the
    request itself always has."""
    if detail == "full" or (error.is_clients and error.tried):
        return None
    if error.is_clients:
        return f"no target can serve this request: {_reasons(error.left_out, detail)}"
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
        by_request = tuple(skipped for skipped in error.left_out if skipped.by_request)
        if by_request:
            message += f"; a target was skipped: {_reasons(by_request, detail)}"
    if failure.retry_after_s:
        message += f"; try again in {failure.retry_after_s:.0f} s"
    return f"{message} {_SEE}"


def broken_off(failure: Failure, target: str, detail: ErrorDetail) -> Failure:
    """A failure within a stream, as a client reads it."""
    if detail == "full" or class_of(failure).next in CLIENTS:
        return failure
    kind = _KINDS.get(failure.kind, _OTHER)
    if detail == "names":
        kind = f"{target}: {_kind_of(failure.kind)}"
    return msgspec.structs.replace(failure, message=f"the answer broke off: {kind} {_SEE}")


def _reasons(left_out: Sequence[LeftOut], detail: ErrorDetail) -> str:
    """Why targets were skipped, each reason once, without what an operator can do."""
    names = detail == "names"
    reasons = (f"{skip.target}: {skip.reason}" if names else skip.reason for skip in left_out)
    return "; ".join(few(reasons))


def _kind_of(kind: FailureKind) -> str:
    return kind.replace("_", " ")
