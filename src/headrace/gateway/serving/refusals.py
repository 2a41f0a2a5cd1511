"""Errors that end a request before an answer, as failures with HTTP statuses."""

from __future__ import annotations

import msgspec

from headrace.errors import RequestError
from headrace.gateway.accounts.errors import (
    AccountsError,
    LimitExceededError,
    ModelNotAllowedError,
    RefusedKeyError,
    StoresDownError,
    UnknownPriceError,
)
from headrace.gateway.guards.action import GuardBlockedError
from headrace.gateway.serving.entry import Outcome
from headrace.gateway.serving.error_detail import ErrorDetail, shortened
from headrace.gateway.serving.target_failures import AllTargetsFailedError
from headrace.gateway.serving.told_error import status_for
from headrace.protocol.neutral.failure import Failure, FailureKind

Ending = RequestError | AccountsError | AllTargetsFailedError


def refused(
    error: Ending, dialect: str = "", detail: ErrorDetail = "full"
) -> tuple[int, Failure, Outcome]:
    """Status, failure and outcome for the ledger. `dialect` is the client's, in which a provider's
    own error may be passed on; "" if the error is always rewritten. `detail` is what the client
    reads of failures that are not its own."""
    if isinstance(error, AllTargetsFailedError):
        status, failure = status_for(error, dialect)
        if (short := shortened(error, detail)) is not None:
            failure = msgspec.structs.replace(failure, for_client=short)
        return status, failure, "refused" if error.is_clients else "failed"
    if isinstance(error, AccountsError):
        return *refusal_of(error), "refused"
    if isinstance(error, GuardBlockedError):
        failure = failure_of(error)
        return failure.status or 400, failure, "refused"
    status = 404 if error.code == "model_not_found" else 400
    kind: FailureKind = "not_found" if status == 404 else "bad_request"
    failure = Failure(
        kind=kind, message=str(error), status=status, code=error.code, param=error.param
    )
    return status, failure, "refused"


def refusal_of(error: AccountsError) -> tuple[int, Failure]:
    """Status and failure. A spent budget, which no waiting helps, is a 429 too, because clients
    expect that of OpenAI's `insufficient_quota`."""
    status, kind = _class(error)
    retry_after_s = None
    if isinstance(error, LimitExceededError | StoresDownError):
        retry_after_s = error.retry_after_s
    return status, Failure(
        kind=kind, message=str(error), status=status, code=error.kind, retry_after_s=retry_after_s
    )


def failure_of(error: GuardBlockedError) -> Failure:
    """The failure that a client gets."""
    is_down = error.acted.action == "failed"
    return Failure(
        kind="server" if is_down else "content_policy",
        message=str(error),
        status=503 if is_down else 400,
        code=error.code,
    )


def _class(error: AccountsError) -> tuple[int, FailureKind]:
    if isinstance(error, RefusedKeyError):
        return 401, "authentication"
    if isinstance(error, ModelNotAllowedError | UnknownPriceError):
        return 403, "permission"
    if isinstance(error, LimitExceededError):
        return 429, "payment" if error.is_spent else "rate_limit"
    return 503, "overloaded"
