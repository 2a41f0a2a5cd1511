"""Errors of providers through a whole gateway, to clients of every dialect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace.gateway.serving.entry import Entry
from tests.gateway.cassettes.heard import asked
from tests.gateway.cassettes.playing import settings_of
from tests.gateway.cassettes.recorded_errors import (
    ProviderError,
    documented_errors,
    recorded_errors,
)
from tests.gateway.harness import Told, ask, gateway
from tests.gateway.upstream.scripted import served

pytestmark = pytest.mark.usefixtures("recordings")

KEY = "sk-provider-0123456789-abcdef"
# What a client is told: of its own faults the provider's status, of ours that there was no answer.
STATUS = {
    "bad_request": 400, "context_length": 400, "content_policy": 400, "too_large": 413,
    "rate_limit": 429, "overloaded": 503, "timeout": 504, "authentication": 502,
    "permission": 502, "payment": 502, "not_found": 404, "server": 502,
}  # fmt: skip
OWN_FAULT = ("bad_request", "context_length", "content_policy", "too_large")
# Of the provider's reply, what says who it is to its own customer, or is of its own connection.
_PRIVATE = (
    "set-cookie", "openai-organization", "openai-project", "cf-ray", "x-request-cost",
    "anthropic-organization-id", "x-ratelimit-remaining-requests", "x-amzn-requestid", "server",
    "x-debug-trace-id", "apim-request-id", "strict-transport-security", "alt-svc", "vary",
)  # fmt: skip


def _openai(body: Any) -> tuple[str, str]:
    error = body["error"]
    assert error.keys() == {"message", "type", "param", "code"} and isinstance(error["type"], str)
    return error["message"], error["type"]


def _anthropic(body: Any) -> tuple[str, str]:
    assert body["type"] == "error" and body["request_id"] == "one"
    assert body["error"].keys() == {"type", "message"}
    return body["error"]["message"], body["error"]["type"]


def _ollama(body: Any) -> tuple[str, str]:
    assert isinstance(body["error"], str)
    return body["error"], ""


READ: dict[str, Callable[[Any], tuple[str, str]]] = {
    "/v1/chat/completions": _openai,
    "/v1/completions": _openai,
    "/v1/responses": _openai,
    "/v1/messages": _anthropic,
    "/api/chat": _ollama,
    "/api/generate": _ollama,
}
# The words that programs match on; for the others any of the dialect's will do.
TYPES = {
    ("/v1/messages", "rate_limit"): "rate_limit_error",
    ("/v1/messages", "overloaded"): "overloaded_error",
    ("/v1/messages", "bad_request"): "invalid_request_error",
    ("/v1/messages", "context_length"): "invalid_request_error",
    ("/v1/messages", "content_policy"): "invalid_request_error",
    ("/v1/messages", "too_large"): "request_too_large",
    ("/v1/messages", "server"): "api_error",
    ("/v1/messages", "authentication"): "api_error",
    ("/v1/messages", "permission"): "api_error",
    ("/v1/messages", "payment"): "api_error",
}


def question(path: str, *, stream: bool) -> dict[str, Any]:
    if path in ("/v1/completions", "/api/generate"):
        return {"model": "chat", "prompt": "Hi", "stream": stream}
    return asked(path, stream=stream)


def wire(error: ProviderError, body: bytes) -> bytes:
    """The reply with all its headers but those of how it was sent."""
    head = f"HTTP/1.1 {error.status} Error\r\n"
    for name, value in error.headers.items():
        if name not in ("content-length", "transfer-encoding", "content-encoding", "connection"):
            head += f"{name}: {value}\r\n"
    head += "set-cookie: __cf_bm=provider-session\r\nopenai-organization: org-of-the-operator\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def told_of(
    error: ProviderError, path: str, *, stream: bool, body: bytes | None = None
) -> tuple[Told, list[Entry]]:
    """What a client of a gateway of its own is told, and the ledger's lines."""
    raw = wire(error, error.body if body is None else body)

    async def answer(_number: int, _request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)

    entries: list[Entry] = []
    async with served(answer) as provider:
        settings = settings_of(error.vendor, provider.origin.port)
        if "api_key" in settings["providers"]["a"]:
            settings["providers"]["a"]["api_key"] = [KEY]
        built = gateway(settings, entries)
        try:
            told = await ask(
                built.app, question(path, stream=stream), path=path,
                headers={"x-request-id": "one"},
            )  # fmt: skip
        finally:
            built.close()
    return told, entries


def check(error: ProviderError, path: str, told: Told, entries: list[Entry]) -> None:
    at = f"{path} {error.at}: {told.body[:300]!r}"
    assert told.status == STATUS[error.kind], at
    assert told.headers["content-type"] == "application/json", at
    message, type = READ[path](told.json)
    shown = " ".join(error.message.split())
    if error.kind not in OWN_FAULT and len(shown) > 590:
        shown = shown[:590]
    assert shown in " ".join(message.split()), at
    assert type == TYPES.get((path, error.kind), type), at
    if path == "/v1/chat/completions" and error.kind == "context_length":
        assert told.json["error"]["code"] == "context_length_exceeded", at
    if "retry-after" in error.headers:
        assert told.headers["retry-after"] == "7", at
    (line,) = entries
    assert (line.outcome, line.status, line.usage, line.usage_from) == (
        "refused" if error.kind in OWN_FAULT else "failed", told.status, None, "none",
    ), at  # fmt: skip
    assert not line.cost_nusd and line.finish is None, at
    assert line.error and line.error in message, at
    (attempt,) = line.attempts
    assert (attempt.target, attempt.failure, attempt.status) == ("a/m", error.kind, error.status)
    assert error.message[:100] in attempt.message, at
    passed_on = told.headers.keys() & set(_PRIVATE)
    assert not passed_on, f"{at} {passed_on}"
    assert "provider-session" not in str(told) and "org-of-the-operator" not in str(told), at


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("path", READ)
async def test_recorded_errors(path: str, stream: bool) -> None:
    errors = recorded_errors()
    assert len(errors) > 20 and {one.status for one in errors} >= {400, 401, 404, 429}
    for error in errors:
        check(error, path, *await told_of(error, path, stream=stream))


@pytest.mark.parametrize("path", READ)
@pytest.mark.parametrize("error", documented_errors(), ids=str)
async def test_documented_errors(error: ProviderError, path: str) -> None:
    for stream in (False, True):
        check(error, path, *await told_of(error, path, stream=stream))


@pytest.mark.load
@pytest.mark.parametrize("path", READ)
async def test_a_key_that_an_error_quotes_is_told_to_nobody(path: str) -> None:
    errors = [one for one in documented_errors() if one.vendor.kind != "google-vertex"]
    for error in errors:
        quoting = json.dumps(error.message)[1:-1]
        body = error.body.replace(quoting.encode(), f"{quoting} ({KEY})".encode())
        assert KEY.encode() in body
        told, (line,) = await told_of(error, path, stream=False, body=body)
        assert KEY not in str(told.headers) and KEY.encode() not in told.body, error.at
        assert "[secret]" in READ[path](told.json)[0], error.at
        assert KEY not in repr(line), error.at
