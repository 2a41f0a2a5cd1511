"""The error for a request that no target answered."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType

from headrace.gateway.routing.decision import LeftOut
from headrace.gateway.routing.eligible import Reason
from headrace.gateway.serving.after_failure import CLASSES, CLIENTS, Tried, class_of, summary
from headrace.protocol.neutral.failure import Failure

# Failures that concern one provider alone: another may have the model, or accept the request.
_OF_ONE = frozenset(("not_found", "account_limit"))
_MOST_REASONS = 8
_NONE: Mapping[str, tuple[LeftOut, ...]] = MappingProxyType({})


class AllTargetsFailedError(Exception):
    """A request that no target answered.

    `failure` is the most informative one and `status` that of the reply. `tried` holds all
    attempts, `left_out` the targets that were not tried. `is_clients` says whether the request
    itself was at fault.
    """

    def __init__(
        self, status: int, failure: Failure, tried: tuple[Tried, ...], left_out: tuple[LeftOut, ...]
    ) -> None:
        super().__init__(failure.message)
        self.status = status
        self.failure = failure
        self.tried = tried
        self.left_out = left_out
        next = class_of(failure).next
        of_clients = next in CLIENTS or next == "other_account"
        self.is_clients = of_clients or failure.as_told is not None


def nobody_answered(
    given: Sequence[Tried],
    without: Sequence[LeftOut],
    *,
    followed: Mapping[str, tuple[LeftOut, ...]] = _NONE,
    no_room: Reason | None = None,
    unasked: int = 0,
) -> AllTargetsFailedError:
    """The error for a request.

    `given` holds all attempts, `without` the targets that were not tried. `followed` holds the
    lists of fallbacks that were used, each with the targets skipped in it. `no_room` is the
    client's limit that ended it. `unasked` is the number of targets cut off by `retries.attempts`.
    """
    tried, left_out = tuple(given), tuple(without)
    if not tried:
        return _nobody_to_ask(left_out)
    worst = _most_telling(tried, followed)
    failed = class_of(worst)
    if failed.next in CLIENTS:
        if waiting := _may_yet_take_it(failed.next, tried, followed):
            return _nobody_free(tried, waiting)
        return AllTargetsFailedError(failed.status, worst, tried, left_out)
    waits = [attempt.failure.retry_after_s for attempt in tried if attempt.failure.retry_after_s]
    wait_s, told = min(waits, default=None), f"no target answered: {summary(tried)}"
    if no_room is not None:
        told += f"; no other target was tried, as there is no room to hold more: {no_room.said}"
        if no_room.for_s is not None:
            wait_s = max(wait_s or 0.0, no_room.for_s)
    if unasked:
        told += f"; {unasked} more not tried, as `retries.attempts` is {len(tried)}"
    if left_out:
        told += f"; skipped: {_reasons(left_out)}"
    if worst.kind in _OF_ONE and any(skipped.for_s is not None for skipped in left_out):
        return _nobody_free(tried, left_out)  # a target that was not tried may have it
    all_told = all(attempt.failure.as_told is not None for attempt in tried)
    if all_told and no_room is None and not unasked:  # the client can fix it
        return AllTargetsFailedError(failed.status, worst, tried, left_out)
    ours = failed.next == "other_key" and worst.kind != "rate_limit"
    failure = Failure(
        # The client's own key is not at fault.
        kind="server" if ours else worst.kind,
        message=told,
        status=worst.status,
        code="upstream_credentials_exhausted" if ours else worst.code,
        retry_after_s=wait_s,
    )
    return AllTargetsFailedError(failed.status, failure, tried, left_out)


def _most_telling(tried: tuple[Tried, ...], followed: Container[str]) -> Failure:
    """The failure to report: the client's own fault first, then one that waiting helps, then the
    last of a target that has the model. A fault with fallbacks comes after their failures."""
    failures = [attempt.failure for attempt in reversed(tried)]
    clients = [failure for failure in failures if class_of(failure).next in CLIENTS]
    for failure in clients:
        if class_of(failure).next not in followed:
            return failure
    for failure in failures:
        if failure.kind in ("rate_limit", "overloaded"):
            return failure
    have = (
        failure for failure in failures if failure.kind not in _OF_ONE and failure not in clients
    )
    rest = clients or [failure for failure in failures if failure.kind != "not_found"] or failures
    return next(have, rest[0])


def _may_yet_take_it(
    kind: str, tried: tuple[Tried, ...], followed: Mapping[str, tuple[LeftOut, ...]]
) -> tuple[LeftOut, ...]:
    """Fallbacks that could not be tried now, of models that did not refuse the request."""
    refused = {attempt.model for attempt in tried if class_of(attempt.failure).next == kind}
    return tuple(
        skipped
        for skipped in followed.get(kind, ())
        if skipped.for_s is not None and skipped.model not in refused
    )


def _nobody_to_ask(left_out: tuple[LeftOut, ...]) -> AllTargetsFailedError:
    """Nothing was sent: every target was left out."""
    if all(skipped.for_s is None for skipped in left_out):
        reasons = _reasons(left_out)
        too_long = bool(left_out) and all(skipped.too_long for skipped in left_out)
        failure = Failure(
            kind="context_length" if too_long else "bad_request",
            message=f"no target can serve this request: {reasons}",
            code="context_length_exceeded" if too_long else "no_eligible_target",
        )
        return AllTargetsFailedError(CLASSES["bad_request"].status, failure, (), left_out)
    return _nobody_free((), left_out)


def _nobody_free(tried: tuple[Tried, ...], left_out: tuple[LeftOut, ...]) -> AllTargetsFailedError:
    """Waiting may help: some targets will be available again."""
    told = [_reasons(left_out), *([summary(tried)] if tried else [])]
    limited = all(skipped.rate_limited for skipped in left_out if skipped.for_s is not None)
    failure = Failure(
        kind="rate_limit" if limited else "server",
        message=f"no target is free: {'; '.join(told)}",
        code="no_target_available",
        retry_after_s=max(
            1.0, min(skipped.for_s for skipped in left_out if skipped.for_s is not None)
        ),
    )
    status = CLASSES["rate_limit" if limited else "overloaded"].status
    return AllTargetsFailedError(status, failure, tried, left_out)


def reasons_of(left_out: Sequence[LeftOut]) -> tuple[str, ...]:
    """Each skipped target with its reason, as operators read it."""
    return few(f"{skipped.target}: {skipped.for_operators}" for skipped in left_out)


def few(reasons: Iterable[str]) -> tuple[str, ...]:
    """Each once; of many the first, and how many more there are."""
    found = tuple(dict.fromkeys(reasons))
    if len(found) <= _MOST_REASONS:
        return found
    return (*found[:_MOST_REASONS], f"{len(found) - _MOST_REASONS} more")


def _reasons(left_out: tuple[LeftOut, ...]) -> str:
    return "; ".join(reasons_of(left_out))
