"""Errors of the API, read and written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.dialects.anthropic import CLIENT, PROVIDER
from headrace.protocol.neutral.failure import Failure, FailureKind
from tests.protocol.dialects.anthropic.recorded import errors

pytestmark = pytest.mark.usefixtures("recordings")


def body(type: str, message: str = "m") -> bytes:
    error = {"type": "error", "error": {"type": type, "message": message}, "request_id": "req_1"}
    return json.dumps(error).encode()


@pytest.mark.parametrize(
    ("status", "type", "message", "kind"),
    [
        (400, "invalid_request_error", "max_tokens: too high", "bad_request"),
        (
            400,
            "invalid_request_error",
            "prompt is too long: 214564 tokens > 200000 maximum",
            "context_length",
        ),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 199000 + 8000 > 200000",
            "context_length",
        ),
        (
            400,
            "invalid_request_error",
            "Output blocked by content filtering policy",
            "content_policy",
        ),
        (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API.",
            "payment",
        ),
        (401, "authentication_error", "invalid x-api-key", "authentication"),
        (402, "billing_error", "m", "payment"),
        (403, "permission_error", "m", "permission"),
        (404, "not_found_error", "model: x", "not_found"),
        (413, "request_too_large", "m", "too_large"),
        (429, "rate_limit_error", "m", "rate_limit"),
        (500, "api_error", "m", "server"),
        (504, "timeout_error", "m", "timeout"),
        (529, "overloaded_error", "Overloaded", "overloaded"),
    ],
)
def test_kinds(status: int, type: str, message: str, kind: FailureKind) -> None:
    failure = PROVIDER.read_failure(status, {}, body(type, message))
    assert failure == Failure(
        kind=kind, message=message, status=status, code=type, request_id="req_1"
    )
    again = json.loads(CLIENT.write_failure(failure, status, "req_2"))
    assert again["type"] == "error"
    assert again["request_id"] == "req_2"
    expected = "billing_error" if kind == "payment" else type
    assert again["error"]["type"] == expected
    assert message in again["error"]["message"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "bad_request"),
        (401, "authentication"),
        (404, "not_found"),
        (422, "bad_request"),
        (429, "rate_limit"),
        (500, "server"),
        (502, "server"),
        (503, "overloaded"),
        (504, "timeout"),
        (529, "overloaded"),
    ],
)
def test_bodies_that_say_nothing(status: int, kind: str) -> None:
    for raw in (b"", b"\xff\xfe", b"[1]", b"{}", b'{"error": "x"}', b"[" * 100_000):
        failure = PROVIDER.read_failure(status, {}, raw)
        assert failure.kind == kind
        assert failure.message
        assert len(failure.message) <= 300
    page = PROVIDER.read_failure(status, {}, b"<html>bad gateway</html>")
    assert page.message == "<html>bad gateway</html>"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "15"}, 15.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_when_to_try_again(headers: dict[str, str], seconds: float | None) -> None:
    failure = PROVIDER.read_failure(429, headers, body("rate_limit_error"))
    assert failure.retry_after_s == seconds


@pytest.mark.parametrize(
    ("code", "kind"),
    [("enforced_spend_limit_reached", "payment"), ("ramp_limit_exceeded", "rate_limit")],
)
def test_codes_of_their_own(code: str, kind: str) -> None:
    error = {"type": "rate_limit_error", "message": "m", "details": {"error_code": code}}
    failure = PROVIDER.read_failure(429, {}, json.dumps({"error": error}).encode())
    assert (failure.kind, failure.code) == (kind, code)


def test_the_request_is_named_by_body_or_header() -> None:
    assert PROVIDER.read_failure(500, {"Request-Id": "req_h"}, b"").request_id == "req_h"


@pytest.mark.parametrize(
    ("kind", "type"),
    [
        ("context_length", "invalid_request_error"),
        ("content_policy", "invalid_request_error"),
        ("network", "api_error"),
        ("damaged", "api_error"),
        ("timeout", "timeout_error"),
    ],
)
def test_failures_of_other_dialects(kind: FailureKind, type: str) -> None:
    written = json.loads(CLIENT.write_failure(Failure(kind=kind, message="m"), 500, "r"))
    assert written["error"]["type"] == type


def test_agents_find_the_words_they_shorten_by() -> None:
    failure = Failure(kind="context_length", message="maximum context length is 8192 tokens")
    written = json.loads(CLIENT.write_failure(failure, 400, "r"))
    assert written["error"]["message"] == (
        "prompt is too long: maximum context length is 8192 tokens"
    )


def test_recorded_errors() -> None:
    found = errors()
    for exchange in found:
        raw = json.loads(exchange.body)
        failure = PROVIDER.read_failure(exchange.status, exchange.headers, exchange.body)
        assert failure.message == raw["error"]["message"]
        assert failure.code == raw["error"]["type"]
        assert failure.status == exchange.status
        assert failure.request_id == raw.get("request_id", failure.request_id)
        expected = {
            "invalid_request_error": "bad_request",
            "not_found_error": "not_found",
            "authentication_error": "authentication",
        }[raw["error"]["type"]]
        assert failure.kind == expected, exchange.at
    assert found


@given(st.integers(100, 599), st.binary(max_size=60), st.dictionaries(st.text(), st.text()))
def test_any_body_is_a_failure(status: int, raw: bytes, headers: dict[str, str]) -> None:
    assert PROVIDER.read_failure(status, headers, raw).status == status
