from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from headrace.protocol.dialects.openai_responses import CLIENT, PROVIDER
from headrace.protocol.neutral.failure import Failure, FailureKind


def failure(status: int, body: Any, **headers: str) -> Failure:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return PROVIDER.read_failure(status, named, raw)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (
            400,
            {"type": "invalid_request_error", "message": "x", "param": "temperature"},
            "bad_request",
        ),
        (400, {"code": "context_length_exceeded", "message": "x"}, "context_length"),
        (
            400,
            {"message": "Your input exceeds the context window of this model."},
            "context_length",
        ),
        (400, {"message": "This model's maximum context length is 8192 tokens"}, "context_length"),
        (400, {"code": "invalid_prompt", "message": "x"}, "content_policy"),
        (400, {"message": "flagged as violating our usage policy"}, "content_policy"),
        (401, {"code": "invalid_api_key", "message": "x"}, "authentication"),
        (403, {"message": "x"}, "permission"),
        (404, {"code": "model_not_found", "message": "x"}, "not_found"),
        (408, {}, "timeout"),
        (413, {}, "too_large"),
        (422, {}, "bad_request"),
        (429, {"type": "insufficient_quota", "code": "insufficient_quota"}, "payment"),
        (429, {"type": "tokens", "code": "rate_limit_exceeded"}, "rate_limit"),
        (429, {}, "rate_limit"),
        (500, {"type": "server_error"}, "server"),
        (503, {}, "overloaded"),
        (504, {}, "timeout"),
        (502, {}, "server"),
    ],
)
def test_kinds(status: int, error: dict[str, Any], kind: str) -> None:
    got = failure(status, {"error": error})
    assert (got.kind, got.status) == (kind, status)
    assert got.message and got.param == error.get("param")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Retry_After": "2"}, 2.0),
        ({"retry_after_ms": "1500", "retry_after": "2"}, 1.5),
        ({"retry_after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "inf"}, None),
        ({}, None),
    ],
)
def test_when_to_try_again(headers: dict[str, str], expected: float | None) -> None:
    assert failure(429, {}, **headers).retry_after_s == expected


def test_the_request_id_is_told() -> None:
    assert failure(500, {}, X_Request_Id="req_1").request_id == "req_1"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the provider answered with status 500"),
        (b"<html>Bad Gateway</html>", "<html>Bad Gateway</html>"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ({"error": "plain"}, "plain"),
        ({"detail": "not found"}, "not found"),
        ({"message": "top"}, "top"),
        ([{"error": {"message": "in a list"}}], "in a list"),
        ({"error": {"message": 3, "code": 10**400}}, "the provider answered with status 500"),
        (None, "the provider answered with status 500"),
        (b"[" * 100_000, "[" * 2000),
    ],
)
def test_any_body_will_do(body: Any, message: str) -> None:
    assert failure(500, body).message == message


@pytest.mark.parametrize("kind", get_args(FailureKind))
def test_every_kind_can_be_written(kind: FailureKind) -> None:
    wrote = json.loads(CLIENT.write_failure(Failure(kind=kind, message="no"), 500, "r"))
    assert wrote["error"].keys() == {"message", "type", "param", "code"}
    again = failure(418, wrote)
    if kind not in ("network", "damaged", "too_large", "reply_too_large", "permission"):
        assert again.kind == kind


def test_an_error_of_this_dialect_comes_out_as_it_went_in() -> None:
    error = {
        "message": "Expected a value >= 0",
        "type": "invalid_request_error",
        "param": "temperature",
        "code": "decimal_below_min_value",
    }
    got = failure(400, {"error": error})
    assert json.loads(CLIENT.write_failure(got, 400, "r")) == {"error": error}
