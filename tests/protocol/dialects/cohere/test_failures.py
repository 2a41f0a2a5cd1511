"""Why Cohere gives no answer."""

from __future__ import annotations

import json

import pytest

from headrace.protocol.dialects.cohere import PROVIDER
from headrace.protocol.neutral.failure import Failure


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (400, "invalid request: p must be less than 1", "bad_request"),
        (400, "too many tokens: size limit exceeded by 11326 tokens", "context_length"),
        (400, "blocked output: please try again", "content_policy"),
        (401, "invalid api token", "authentication"),
        (402, "Please add or update your payment method", "payment"),
        (403, "no access", "permission"),
        (404, "model 'x' not found, make sure the correct model ID was used", "not_found"),
        (413, "", "too_large"),
        (422, "invalid type", "bad_request"),
        (429, "You are using a Trial key, limited to 20 API calls / minute", "rate_limit"),
        (429, "You are using a Trial key, limited to 1000 API calls / month", "payment"),
        (498, "denied", "content_policy"),
        (499, "cancelled", "network"),
        (500, "internal server error", "server"),
        (501, "not implemented", "bad_request"),
        (503, "", "overloaded"),
        (504, "", "timeout"),
    ],
)
def test_kinds(status: int, message: str, kind: str) -> None:
    body = json.dumps({"id": "r9", "message": message}).encode()
    failure = PROVIDER.read_failure(status, {}, body)
    assert failure.kind == kind
    assert failure.message == (message or f"Cohere answered with status {status}")
    assert (failure.status, failure.request_id) == (status, "r9")


def test_headers_say_when_to_come_back_and_which_request_it_was() -> None:
    headers = {"Retry-After": "7", "X-Debug-Trace-ID": "t1"}
    failure = PROVIDER.read_failure(429, headers, b'{"message": "slow down", "id": "r"}')
    assert failure == Failure(
        kind="rate_limit",
        message="slow down",
        status=429,
        retry_after_s=7.0,
        request_id="t1",
    )
