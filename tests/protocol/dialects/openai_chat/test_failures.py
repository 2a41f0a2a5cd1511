"""Errors of servers, and errors for clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.protocol.dialects.openai_chat import CLIENT
from headrace.protocol.neutral.failure import Failure
from tests.protocol.dialects.openai_chat.samples import GENERIC


def failed(status: int, body: Any, **headers: str) -> Failure:
    """The failure that a body is."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return GENERIC.read_failure(status, named, raw)


def error(message: str, **fields: Any) -> dict[str, Any]:
    """OpenAI's error body."""
    return {"error": {"message": message, **fields}}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, error("x", code="context_length_exceeded"), "context_length"),
        (400, error("This model's maximum context length is 8192 tokens."), "context_length"),
        (400, error("This model's maximum prompt length is 131072"), "context_length"),
        (400, error("x", type="exceed_context_size_error"), "context_length"),
        (413, error("Please reduce the length of the messages or completion."), "context_length"),
        (429, error("Request too large ... maximum context length", code=None), "rate_limit"),
        (413, error("on tokens per minute", code="rate_limit_exceeded"), "rate_limit"),
        (400, error("x", code="content_filter"), "content_policy"),
        (
            400,
            error("x", code=None, innererror={"code": "ResponsibleAIPolicyViolation"}),
            "content_policy",
        ),
        (400, error("flagged as potentially violating our usage policy"), "content_policy"),
        (429, error("You exceeded your current quota", code="insufficient_quota"), "payment"),
        (402, error("Insufficient Balance"), "payment"),
        (401, error("bad key", code="invalid_api_key"), "authentication"),
        (403, error("no"), "permission"),
        (404, error("no such model", code="model_not_found"), "not_found"),
        (400, error("gone", code="model_decommissioned"), "not_found"),
        (400, error("bad call", code="tool_use_failed"), "server"),
        (400, error("no"), "bad_request"),
        (422, {"detail": [{"loc": ["body", "n"], "msg": "too many"}]}, "bad_request"),
        (413, b"", "too_large"),
        (429, {"message": "slow"}, "rate_limit"),
        (408, b"", "timeout"),
        (504, b"<html>", "timeout"),
        (500, b"\xff\xfe", "server"),
        (503, "busy", "overloaded"),
        (529, [], "overloaded"),
        (498, error("capacity"), "overloaded"),
    ],
)
def test_kinds(status: int, body: Any, kind: str) -> None:
    failure = failed(status, body)
    assert failure.kind == kind
    assert failure.status == status
    assert failure.message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (error("why"), "why"),
        ({"error": "why"}, "why"),
        ({"error": {"error": {"message": "why"}}}, "why"),
        ({"detail": "why"}, "why"),
        ({"detail": [{"loc": ["body", "n"], "msg": "too many"}]}, "body.n: too many"),
        ({"message": "why"}, "why"),
        ({"object": "error", "message": "why", "code": 400}, "why"),
        ({"errors": [{"message": "why"}]}, "why"),
        ([error("why")], "why"),
        ("why", "why"),
        (b"why", "why"),
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": "why"}}},
            "Provider returned error: why",
        ),
        (b"<html>secret page</html>", "the provider answered with status 400"),
        ({"error": {"message": {"x": 1}}}, '{"error'),
    ],
)
def test_messages(body: Any, message: str) -> None:
    found = failed(400, body).message
    assert found == message or (message == '{"error' and found)


def test_code_param_and_request_id() -> None:
    body = error("m", code="c", param="messages[0]", type="t")
    failure = failed(400, body, X_Request_Id="req_1")
    assert (failure.code, failure.param, failure.request_id) == ("c", "messages[0]", "req_1")
    assert failed(400, error("m", type="t")).code == "t"
    assert failed(400, {}, apim_request_id="a").request_id == "a"


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"Retry_After": "1.5"}, 1.5),
        ({"retry_after_ms": "250", "retry_after": "7"}, 0.25),
        ({"retry_after_ms": "x", "retry_after": "7"}, 7.0),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "inf"}, None),
        ({}, None),
    ],
)
def test_when_to_come_back(headers: dict[str, str], wait_s: float | None) -> None:
    assert failed(429, {}, **headers).retry_after_s == wait_s


@pytest.mark.parametrize(
    ("failure", "kind", "code"),
    [
        (
            Failure(kind="context_length", message="m", code="x"),
            "invalid_request_error",
            "context_length_exceeded",
        ),
        (Failure(kind="bad_request", message="m", code="x"), "invalid_request_error", "x"),
        (Failure(kind="authentication", message="m"), "invalid_request_error", "invalid_api_key"),
        (Failure(kind="payment", message="m"), "insufficient_quota", "insufficient_quota"),
        (Failure(kind="rate_limit", message="m"), "rate_limit_error", "rate_limit_exceeded"),
        (Failure(kind="server", message="m"), "server_error", None),
    ],
)
def test_errors_for_clients(failure: Failure, kind: str, code: str | None) -> None:
    body = json.loads(CLIENT.write_failure(failure, 400, "id-1"))
    assert body == {
        "error": {"message": "m", "type": kind, "param": None, "code": code},
        "request_id": "id-1",
    }


def test_a_failure_comes_back_as_it_went() -> None:
    kinds = (
        "context_length",
        "content_policy",
        "authentication",
        "payment",
        "not_found",
        "rate_limit",
    )
    for kind in kinds:
        body = CLIENT.write_failure(Failure(kind=kind, message="m"), 400, "")  # type: ignore[arg-type]
        assert GENERIC.read_failure(400, {}, body).kind == kind
