"""Google's errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.protocol.dialects.gemini import PROVIDER
from headrace.protocol.neutral.failure import Failure
from tests.protocol.dialects.gemini.recorded import google_exchanges

pytestmark = pytest.mark.usefixtures("recordings")

PREFIX = "type.googleapis.com/google.rpc."
RETRY = {"@type": PREFIX + "RetryInfo", "retryDelay": "12s"}


def quota(**violation: str) -> dict[str, Any]:
    return {"@type": PREFIX + "QuotaFailure", "violations": [violation]}


def reason(name: str) -> dict[str, Any]:
    return {"@type": PREFIX + "ErrorInfo", "reason": name, "domain": "googleapis.com"}


def failure(code: int, status: str, message: str, *details: Any, **headers: str) -> Failure:
    error = {"code": code, "status": status, "message": message, "details": list(details)}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return PROVIDER.read_failure(code, named, json.dumps({"error": error}).encode())


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (400, "INVALID_ARGUMENT", "bad_request"),
        (400, "FAILED_PRECONDITION", "bad_request"),
        (401, "UNAUTHENTICATED", "authentication"),
        (403, "PERMISSION_DENIED", "permission"),
        (404, "NOT_FOUND", "not_found"),
        (429, "RESOURCE_EXHAUSTED", "rate_limit"),
        (500, "INTERNAL", "server"),
        (501, "UNIMPLEMENTED", "bad_request"),
        (503, "UNAVAILABLE", "overloaded"),
        (504, "DEADLINE_EXCEEDED", "timeout"),
    ],
)
def test_kinds_by_status(code: int, status: str, kind: str) -> None:
    found = failure(code, status, "told")
    assert (found.kind, found.status, found.code, found.message) == (kind, code, status, "told")


@pytest.mark.parametrize(
    ("code", "status", "message", "kind"),
    [
        (
            400,
            "INVALID_ARGUMENT",
            "The input token count (1048580) exceeds the maximum number of tokens allowed (1048576)"
            ".",
            "context_length",
        ),
        (
            400,
            "INVALID_ARGUMENT",
            "Unable to submit request because the input token count is 9 but model only supports "
            "up to 8. Reduce the input token count and try again.",
            "context_length",
        ),
        (
            400,
            "INVALID_ARGUMENT",
            "API key not valid. Please pass a valid API key.",
            "authentication",
        ),
        (
            400,
            "INVALID_ARGUMENT",
            "Request payload size exceeds the limit: 20971520 bytes.",
            "too_large",
        ),
        (
            400,
            "FAILED_PRECONDITION",
            "User location is not supported for the API use.",
            "permission",
        ),
        (400, "FAILED_PRECONDITION", "Please enable billing on your project.", "payment"),
        (403, "PERMISSION_DENIED", "This API method requires billing to be enabled.", "payment"),
        (403, "PERMISSION_DENIED", "Your API key was reported as leaked.", "authentication"),
        (
            403,
            "PERMISSION_DENIED",
            "Method doesn't allow unregistered callers.",
            "authentication",
        ),
        (400, "INVALID_ARGUMENT", "violates Google's Responsible AI practices", "content_policy"),
    ],
)
def test_kinds_by_words(code: int, status: str, message: str, kind: str) -> None:
    assert failure(code, status, message).kind == kind


def test_kinds_by_reason() -> None:
    found = failure(400, "INVALID_ARGUMENT", "bad key", reason("API_KEY_INVALID"))
    assert (found.kind, found.code) == ("authentication", "API_KEY_INVALID")
    assert failure(403, "PERMISSION_DENIED", "x", reason("BILLING_DISABLED")).kind == "payment"
    assert failure(403, "PERMISSION_DENIED", "x", reason("SERVICE_DISABLED")).kind == "permission"
    assert (
        failure(429, "RESOURCE_EXHAUSTED", "x", reason("RATE_LIMIT_EXCEEDED")).kind == "rate_limit"
    )


def test_a_quota_that_waiting_or_money_raises() -> None:
    said = "You exceeded your current quota, please check your plan and billing details."
    minute = quota(quotaId="GenerateRequestsPerMinutePerProjectPerModel-FreeTier", quotaValue="5")
    day = quota(quotaId="GenerateRequestsPerDayPerProjectPerModel-FreeTier", quotaValue="50")
    paid_day = quota(quotaId="GenerateRequestsPerDayPerProjectPerModel", quotaValue="50")
    zero = quota(quotaId="GenerateContentInputTokensPerModelPerMinute-FreeTier", quotaValue="0")
    for held, kind in (
        (minute, "rate_limit"),
        (paid_day, "rate_limit"),
        (day, "payment"),
        (zero, "payment"),
    ):
        found = failure(429, "RESOURCE_EXHAUSTED", said, held, RETRY)
        assert (found.kind, found.retry_after_s) == (kind, 12.0)
    spent = "Your prepayment credits are depleted."
    assert failure(429, "RESOURCE_EXHAUSTED", spent).kind == "payment"
    assert failure(429, "RESOURCE_EXHAUSTED", "Resource exhausted. Try later.").kind == "rate_limit"


@pytest.mark.parametrize(
    ("delay", "seconds"),
    [("12s", 12.0), ("1.25s", 1.25), ("0s", 0.0), ("s", None), ("12", None), ("-1s", None),
     ("1e999s", None), ("nans", None), (12, None), (None, None)],
)  # fmt: skip
def test_how_long_to_wait(delay: Any, seconds: float | None) -> None:
    found = failure(503, "UNAVAILABLE", "x", {"retryDelay": delay})
    assert found.retry_after_s == seconds


def test_headers_are_read_where_the_body_says_nothing() -> None:
    assert failure(429, "RESOURCE_EXHAUSTED", "x", retry_after="7").retry_after_s == 7.0
    assert failure(429, "RESOURCE_EXHAUSTED", "x", retry_after_ms="50").retry_after_s == 0.05
    assert failure(429, "RESOURCE_EXHAUSTED", "x", RETRY, retry_after="7").retry_after_s == 12.0
    dated = failure(429, "RESOURCE_EXHAUSTED", "x", retry_after="Wed, 21 Oct 2026 07:28:00 GMT")
    assert dated.retry_after_s is None
    assert failure(500, "INTERNAL", "x", X_Request_Id="r-1").request_id == "r-1"


def test_the_field_at_fault_is_named() -> None:
    violation = {"field": "contents[0].parts[1]", "description": "no"}
    details = {"@type": PREFIX + "BadRequest", "fieldViolations": [{}, violation]}
    assert failure(400, "INVALID_ARGUMENT", "x", details).param == "contents[0].parts[1]"


def test_an_error_may_come_in_a_list() -> None:
    error = {"error": {"code": 404, "message": "gone", "status": "NOT_FOUND"}}
    found = PROVIDER.read_failure(404, {}, json.dumps([error]).encode())
    assert (found.kind, found.message) == ("not_found", "gone")


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>502</html>", b"[]", b"[1]", b"null", b'"x"', b"\xff\xfe", b'{"error": 5}',
     b'{"error": {"code": "x", "status": [], "message": {}, "details": "y"}}',
     b'{"error": {"details": [1, null, {"violations": 5, "retryDelay": [], "reason": {}}]}}',
     b'{"error": "plain"}', b"[" * 5000],
)  # fmt: skip
def test_any_body_gives_a_failure(body: bytes) -> None:
    for status, kind in (
        (502, "server"),
        (429, "rate_limit"),
        (418, "bad_request"),
        (413, "too_large"),
    ):
        found = PROVIDER.read_failure(status, {}, body)
        assert (found.kind, found.status) == (kind, status)
        assert found.message
        assert len(found.message) <= 500


def test_recorded_errors() -> None:
    seen = 0
    for exchange in google_exchanges():
        if exchange.status < 400:
            continue
        seen += 1
        found = PROVIDER.read_failure(exchange.status, exchange.headers, exchange.body)
        raw = json.loads(exchange.body)
        error = (raw[0] if isinstance(raw, list) else raw)["error"]
        assert (found.status, found.message) == (exchange.status, error["message"])
        expected = {"NOT_FOUND": "not_found", "INVALID_ARGUMENT": "bad_request"}
        assert found.kind == expected.get(error["status"], found.kind), exchange.at
    assert seen
