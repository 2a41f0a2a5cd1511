"""Why Mistral gives no answer, in all the forms that it says so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.protocol.dialects.mistral import PROVIDER
from headrace.protocol.neutral.failure import Failure


def fail(status: int, body: Any, **headers: str) -> Failure:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return PROVIDER.read_failure(status, named, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("status", "type", "message", "kind"),
    [
        (400, "invalid_request_message_order", "Unexpected role 'user'", "bad_request"),
        (400, "invalid_model", "Invalid model: nope", "not_found"),
        (
            400,
            "invalid_request_prompt",
            "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
            "context_length",
        ),
        (400, "guardrail_violation", "Blocked", "content_policy"),
        (401, "", "Unauthorized", "authentication"),
        (402, "", "Pay", "payment"),
        (403, "", "Input was flagged by a guardrail", "content_policy"),
        (403, "", "Forbidden", "permission"),
        (404, "", "no Route matched with those values", "not_found"),
        (413, "", "", "too_large"),
        (429, "service_tier_capacity_exceeded", "Service tier capacity exceeded", "rate_limit"),
        (429, "", "You have exceeded your monthly limit", "payment"),
        (500, "internal_server_error", "Service unavailable.", "server"),
        (503, "", "", "overloaded"),
    ],
)
def test_kinds(status: int, type: str, message: str, kind: str) -> None:
    body = {"object": "error", "message": message, "type": type, "param": None, "code": None}
    failure = fail(status, body)
    assert failure.kind == kind
    assert failure.message == (message or f"Mistral answered with status {status}")
    assert failure.code == (type or None)


@pytest.mark.parametrize(
    ("body", "message", "code", "param"),
    [
        (
            {"object": "error", "message": "Bad", "type": "t", "param": "n", "code": "3230"},
            "Bad",
            "3230",
            "n",
        ),
        ({"object": "error", "message": "Bad", "code": 1300}, "Bad", "1300", None),
        (
            {
                "detail": [
                    {"loc": ["body", "messages", 0, "role"], "msg": "Field required", "type": "m"},
                    {"loc": ["body", "n"], "msg": "too small", "type": "m"},
                ]
            },
            "messages.0.role: Field required; n: too small",
            None,
            "messages.0.role",
        ),
        (
            {
                "object": "error",
                "message": {"detail": [{"loc": ["body", "top_p"], "msg": "must be less"}]},
                "type": "invalid_request_error",
            },
            "top_p: must be less",
            "invalid_request_error",
            "top_p",
        ),
        ({"message": {"detail": "no"}}, "no", None, None),
        ({"detail": "Unauthorized"}, "Unauthorized", None, None),
        ({"detail": {"msg": "one"}}, "one", None, None),
        ({"error": {"message": "as OpenAI", "type": "t", "code": None}}, "as OpenAI", "t", None),
        ({"error": "words"}, "words", None, None),
    ],
    ids=range(9),
)
def test_forms(body: Any, message: str, code: str | None, param: str | None) -> None:
    failure = fail(422, body)
    assert (failure.message, failure.code, failure.param) == (message, code, param)
    assert failure.kind == "bad_request"


def test_request_ids_and_when_to_come_back() -> None:
    failure = fail(429, {"message": "slow", "request_id": "b"}, Retry_After="3")
    assert (failure.request_id, failure.retry_after_s) == ("b", 3.0)
    failure = fail(429, {"request_id": "b"}, x_kong_request_id="k", mistral_correlation_id="c")
    assert failure.request_id == "c"
