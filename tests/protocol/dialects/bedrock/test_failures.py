"""Bedrock's errors: by the header, by words, by status alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.dialects.bedrock import PROVIDER


def _kind(status: int, code: str = "", message: str = "m") -> str:
    headers = {"x-amzn-ErrorType": code} if code else {}
    return PROVIDER.read_failure(status, headers, json.dumps({"message": message}).encode()).kind


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "ValidationException", "bad_request"),
        (400, "ServiceQuotaExceededException", "rate_limit"),
        (403, "AccessDeniedException", "permission"),
        (403, "UnrecognizedClientException", "authentication"),
        (403, "ExpiredTokenException", "authentication"),
        (403, "InvalidSignatureException", "authentication"),
        (403, "MissingAuthenticationTokenException", "authentication"),
        (404, "ResourceNotFoundException", "not_found"),
        (408, "ModelTimeoutException", "timeout"),
        (424, "ModelErrorException", "server"),
        (429, "ThrottlingException", "rate_limit"),
        (429, "ModelNotReadyException", "overloaded"),
        (500, "InternalServerException", "server"),
        (503, "ServiceUnavailableException", "overloaded"),
        (413, "RequestEntityTooLargeException", "too_large"),
    ],
)
def test_by_the_header(status: int, code: str, kind: str) -> None:
    assert _kind(status, code) == kind
    assert _kind(status, f"{code}:http://internal.amazon.com/coral/com.amazon.bedrock/") == kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "bad_request"),
        (401, "authentication"),
        (403, "permission"),
        (404, "not_found"),
        (408, "timeout"),
        (413, "too_large"),
        (422, "bad_request"),
        (424, "server"),
        (429, "rate_limit"),
        (500, "server"),
        (502, "server"),
        (503, "overloaded"),
        (504, "timeout"),
        (529, "overloaded"),
    ],
)
def test_by_status_alone(status: int, kind: str) -> None:
    assert _kind(status) == kind
    assert _kind(status, "SomethingNewException") == kind
    failure = PROVIDER.read_failure(status, {}, b"<html>")
    assert failure.kind == kind
    assert str(status) in failure.message


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Input is too long for requested model.", "context_length"),
        ("The model returned the following errors: prompt is too long: 2 > 1", "context_length"),
        ("input length and `max_tokens` exceed context limit: 2 + 1 > 2", "context_length"),
        ("Input Tokens Exceeded: Number of input tokens exceeds maximum length", "context_length"),
        ("This model's maximum context length is 8192 tokens.", "context_length"),
        ("Malformed input request: expected maxLength: 50000, actual: 90000", "context_length"),
        ("The provided model identifier is invalid.", "not_found"),
        ("Invocation of model ID x with on-demand throughput isn’t supported.", "not_found"),
        ("Output blocked by content filtering policy: content filter", "content_policy"),
        ("The maximum tokens you requested exceeds the model limit of 4096.", "bad_request"),
        ("The text field in the ContentBlock object at messages.0 is blank.", "bad_request"),
    ],
)
def test_by_words(message: str, kind: str) -> None:
    assert _kind(400, "ValidationException", message) == kind
    assert _kind(400, "", message) == kind
    assert _kind(429, "ThrottlingException", message) == "rate_limit"


def test_a_missing_payment_instrument() -> None:
    message = "Model access is denied due to INVALID_PAYMENT_INSTRUMENT: A valid payment instrument"
    assert _kind(403, "AccessDeniedException", message) == "payment"


def test_all_fields() -> None:
    failure = PROVIDER.read_failure(
        429,
        {
            "X-Amzn-ErrorType": "ThrottlingException:http://x",
            "X-Amzn-RequestId": "r-1",
            "Retry-After": "2.5",
        },
        b'{"message": "Too many requests"}',
    )
    assert failure.code == "ThrottlingException"
    assert failure.message == "Too many requests"
    assert failure.request_id == "r-1"
    assert failure.retry_after_s == 2.5
    assert failure.status == 429


def test_other_forms_of_the_body() -> None:
    failure = PROVIDER.read_failure(
        403, {}, b'{"__type": "com.amazon.coral#AccessDeniedException", "Message": "no"}'
    )
    assert (failure.code, failure.message) == ("AccessDeniedException", "no")
    assert len(PROVIDER.read_failure(400, {}, b'{"message": "%s"}' % (b"x" * 9999)).message) == 2000


@pytest.mark.parametrize("value", ["-1", "soon", "nan", "inf", "", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_wait_that_is_none(value: str) -> None:
    assert PROVIDER.read_failure(429, {"retry-after": value}, b"").retry_after_s is None
    waits = {"retry-after": value, "retry-after-ms": "1500"}
    assert PROVIDER.read_failure(429, waits, b"").retry_after_s == 1.5


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60) | st.just(b"[" * 100_000), st.integers(400, 599))
def test_any_body(body: bytes, status: int) -> None:
    failure = PROVIDER.read_failure(status, {}, body)
    assert failure.status == status
    assert failure.message
