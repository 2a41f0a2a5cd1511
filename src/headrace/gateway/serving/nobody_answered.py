"""What is told of a request that no target answered."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.gateway.routing.decision import LeftOut
from headrace.gateway.serving.after_failure import CLASSES, Tried, class_of, summary
from headrace.protocol.neutral.failure import Failure

# Another request would be answered; nobody has to look after the gateway or a provider.
_CLIENTS = frozenset(("stop", "context_fallback", "policy_fallback"))


class NobodyAnsweredError(Exception):
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
        self.is_clients = class_of(failure).next in _CLIENTS


def nobody_answered(given: Sequence[Tried], without: Sequence[LeftOut]) -> NobodyAnsweredError:
    """given: all attempts. without: who was not asked."""
    tried, left_out = tuple(given), tuple(without)
    if not tried:
        return _nobody_to_ask(left_out)
    worst = _most_telling(tried)
    failed = class_of(worst)
    if failed.next in _CLIENTS:
        return NobodyAnsweredError(failed.status, worst, tried, left_out)
    waits = [one.failure.retry_after_s for one in tried if one.failure.retry_after_s]
    if worst.kind == "not_found" and any(one.for_s is not None for one in left_out):
        return _nobody_free(tried, left_out)  # who was not asked may have it
    ours = failed.next == "other_key" and worst.kind != "rate_limit"
    told = Failure(
        # A client has its own key, which is not at fault.
        kind="server" if ours else worst.kind,
        message=f"no target answered: {summary(tried)}",
        status=worst.status,
        code="upstream_credentials_exhausted" if ours else worst.code,
        retry_after_s=min(waits, default=None),
    )
    return NobodyAnsweredError(failed.status, told, tried, left_out)


def _most_telling(tried: tuple[Tried, ...]) -> Failure:
    """A client's own fault before all others, then what waiting helps, then the last that has what
    is asked for."""
    for one in reversed(tried):
        if class_of(one.failure).next in _CLIENTS:
            return one.failure
    for one in reversed(tried):
        if one.failure.kind in ("rate_limit", "overloaded"):
            return one.failure
    have = (one.failure for one in reversed(tried) if one.failure.kind != "not_found")
    return next(have, tried[-1].failure)


def _nobody_to_ask(left_out: tuple[LeftOut, ...]) -> NobodyAnsweredError:
    """Before anything was sent: every target was left out."""
    if all(one.for_s is None for one in left_out):
        reasons = _reasons(left_out)
        too_long = bool(left_out) and all(one.too_long for one in left_out)
        failure = Failure(
            kind="context_length" if too_long else "bad_request",
            message=f"no target can serve this request: {reasons}",
            code="context_length_exceeded" if too_long else "no_eligible_target",
        )
        return NobodyAnsweredError(CLASSES["bad_request"].status, failure, (), left_out)
    return _nobody_free((), left_out)


def _nobody_free(tried: tuple[Tried, ...], left_out: tuple[LeftOut, ...]) -> NobodyAnsweredError:
    """Waiting may help, for those that were left out."""
    told = [_reasons(left_out), *([summary(tried)] if tried else [])]
    failure = Failure(
        kind="server",
        message=f"no target is free: {'; '.join(told)}",
        code="no_target_available",
        retry_after_s=max(1.0, min(one.for_s for one in left_out if one.for_s is not None)),
    )
    return NobodyAnsweredError(CLASSES["overloaded"].status, failure, tried, left_out)


def _reasons(left_out: tuple[LeftOut, ...]) -> str:
    return "; ".join(f"{one.target}: {one.reason}" for one in left_out[:8])
