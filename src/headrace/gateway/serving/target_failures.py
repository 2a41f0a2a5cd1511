"""What is told of a request that no target answered."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

from headrace.gateway.routing.decision import LeftOut
from headrace.gateway.routing.eligible import Reason
from headrace.gateway.serving.after_failure import CLASSES, Tried, class_of, summary
from headrace.protocol.neutral.failure import Failure

# Another request would be answered; nobody has to look after the gateway or a provider.
_CLIENTS = frozenset(("stop", "context_fallback", "policy_fallback"))
# What says something of one provider alone: another may have it, or do it.
_OF_ONE = frozenset(("not_found", "account_limit"))
_NONE: Mapping[str, tuple[LeftOut, ...]] = MappingProxyType({})


class AllTargetsFailedError(Exception):
    """failure: the one that says most; status: of our reply. tried: all of them. left_out: who was
    not asked. is_clients: whether the request itself was at fault."""

    def __init__(
        self, status: int, failure: Failure, tried: tuple[Tried, ...], left_out: tuple[LeftOut, ...]
    ) -> None:
        super().__init__(failure.message)
        self.status = status
        self.failure = failure
        self.tried = tried
        self.left_out = left_out
        next = class_of(failure).next
        of_clients = next in _CLIENTS or next == "other_account"
        self.is_clients = of_clients or failure.as_told is not None


def nobody_answered(
    given: Sequence[Tried],
    without: Sequence[LeftOut],
    *,
    followed: Mapping[str, tuple[LeftOut, ...]] = _NONE,
    no_room: Reason | None = None,
    unasked: int = 0,
) -> AllTargetsFailedError:
    """given: all attempts. without: who was not asked. followed: the lists of fallbacks that were,
    each with who of it was not asked. no_room: why a limit of the client's ended it. unasked: how
    many targets `retries.attempts` left out."""
    tried, left_out = tuple(given), tuple(without)
    if not tried:
        return _nobody_to_ask(left_out)
    worst = _most_telling(tried, followed)
    failed = class_of(worst)
    if failed.next in _CLIENTS:
        if waiting := _may_yet_take_it(failed.next, tried, followed):
            return _nobody_free(tried, waiting)
        return AllTargetsFailedError(failed.status, worst, tried, left_out)
    waits = [one.failure.retry_after_s for one in tried if one.failure.retry_after_s]
    wait_s, told = min(waits, default=None), f"no target answered: {summary(tried)}"
    if no_room is not None:
        told += f"; nobody else was asked, as there is no room to hold more: {no_room.said}"
        if no_room.for_s is not None:
            wait_s = max(wait_s or 0.0, no_room.for_s)
    if unasked:
        told += f"; {unasked} more not asked, as `retries.attempts` ends it after {len(tried)}"
    if worst.kind in _OF_ONE and any(one.for_s is not None for one in left_out):
        return _nobody_free(tried, left_out)  # who was not asked may have it
    all_told = all(one.failure.as_told is not None for one in tried)
    if all_told and no_room is None and not unasked:  # it is the client's to mend
        return AllTargetsFailedError(failed.status, worst, tried, left_out)
    ours = failed.next == "other_key" and worst.kind != "rate_limit"
    failure = Failure(
        # A client has its own key, which is not at fault.
        kind="server" if ours else worst.kind,
        message=told,
        status=worst.status,
        code="upstream_credentials_exhausted" if ours else worst.code,
        retry_after_s=wait_s,
    )
    return AllTargetsFailedError(failed.status, failure, tried, left_out)


def _most_telling(tried: tuple[Tried, ...], followed: Container[str]) -> Failure:
    """A client's own fault before all others, then what waiting helps, then the last that has what
    is asked for. A fault for which others were asked comes after how those failed."""
    failures = [one.failure for one in reversed(tried)]
    clients = [one for one in failures if class_of(one).next in _CLIENTS]
    for one in clients:
        if class_of(one).next not in followed:
            return one
    for one in failures:
        if one.kind in ("rate_limit", "overloaded"):
            return one
    have = (one for one in failures if one.kind not in _OF_ONE and one not in clients)
    rest = clients or [one for one in failures if one.kind != "not_found"] or failures
    return next(have, rest[0])


def _may_yet_take_it(
    kind: str, tried: tuple[Tried, ...], followed: Mapping[str, tuple[LeftOut, ...]]
) -> tuple[LeftOut, ...]:
    """Fallbacks for it that could not be asked now, of models that did not refuse it themselves."""
    refused = {one.model for one in tried if class_of(one.failure).next == kind}
    return tuple(
        one for one in followed.get(kind, ()) if one.for_s is not None and one.model not in refused
    )


def _nobody_to_ask(left_out: tuple[LeftOut, ...]) -> AllTargetsFailedError:
    """Before anything was sent: every target was left out."""
    if all(one.for_s is None for one in left_out):
        reasons = _reasons(left_out)
        too_long = bool(left_out) and all(one.too_long for one in left_out)
        failure = Failure(
            kind="context_length" if too_long else "bad_request",
            message=f"no target can serve this request: {reasons}",
            code="context_length_exceeded" if too_long else "no_eligible_target",
        )
        return AllTargetsFailedError(CLASSES["bad_request"].status, failure, (), left_out)
    return _nobody_free((), left_out)


def _nobody_free(tried: tuple[Tried, ...], left_out: tuple[LeftOut, ...]) -> AllTargetsFailedError:
    """Waiting may help, for those that were left out."""
    told = [_reasons(left_out), *([summary(tried)] if tried else [])]
    limited = all(one.rate_limited for one in left_out if one.for_s is not None)
    failure = Failure(
        kind="rate_limit" if limited else "server",
        message=f"no target is free: {'; '.join(told)}",
        code="no_target_available",
        retry_after_s=max(1.0, min(one.for_s for one in left_out if one.for_s is not None)),
    )
    status = CLASSES["rate_limit" if limited else "overloaded"].status
    return AllTargetsFailedError(status, failure, tried, left_out)


def _reasons(left_out: tuple[LeftOut, ...]) -> str:
    return "; ".join(f"{one.target}: {one.reason}" for one in left_out[:8])
