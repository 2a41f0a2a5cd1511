"""Errors of providers: those that were recorded, and those that their documentation has."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

from tests.gateway.cassettes.recordings import ARCHIVES, VENDORS, Vendor
from tests.protocol.neutral.cassettes import Exchange, exchanges

BY_NAME = {one.name: one for one in VENDORS}
# What the words or codes of a recorded error say, where its status alone says something else.
_KINDS_OF_WORDS = (
    (b"model_not_found", "not_found"), (b"The provided model identifier is invalid", "not_found"),
    (b"tool_use_failed", "server"),  # the model's own fault: another may do it right
)  # fmt: skip
_KINDS_OF_STATUS = {401: "authentication", 404: "not_found", 429: "rate_limit"}


class ProviderError(NamedTuple):
    """kind: what it is, as the gateway has to see it. message: the provider's own words."""

    at: str
    vendor: Vendor
    status: int
    headers: dict[str, str]
    body: bytes
    kind: str
    message: str

    def __str__(self) -> str:
        return self.at


@cache
def recorded_errors() -> tuple[ProviderError, ...]:
    """All that were recorded of chat, and Azure's of embeddings; no two of the same body."""
    found: dict[tuple[str, bytes], ProviderError] = {}
    for archive in ARCHIVES:
        for exchange in exchanges(archive, holds="code: 4" if archive != ARCHIVES[2] else ""):
            vendor = _vendor_of(exchange)
            if vendor is None or exchange.status < 400:
                continue
            value = json.loads(exchange.body)
            message = (value.get("error") or value)["message"]
            said = (kind for words, kind in _KINDS_OF_WORDS if words in exchange.body)
            kind = next(said, _KINDS_OF_STATUS.get(exchange.status, "bad_request"))
            error = ProviderError(
                exchange.at, vendor, exchange.status, exchange.headers, exchange.body, kind, message
            )
            found.setdefault((vendor.name, exchange.body), error)
    return tuple(found.values())


def _vendor_of(exchange: Exchange) -> Vendor | None:
    path = exchange.path.partition("?")[0]
    if "azure.com" in exchange.host and path.endswith("/embeddings"):
        return BY_NAME["azure"]
    return next(
        (
            one
            for one in VENDORS
            if one.host in exchange.host and path.endswith((one.path, one.path + "-stream"))
        ),
        None,
    )


def _openai(code: str | None, message: str) -> Any:
    return {"error": {"message": message, "type": "x", "param": None, "code": code}}


def _anthropic(code: str | None, message: str) -> Any:
    return {"type": "error", "error": {"type": code, "message": message}, "request_id": "req_01"}


def _google(code: str | None, message: str) -> Any:
    return {"error": {"code": 1, "message": message, "status": code}}


def _bedrock(code: str | None, message: str) -> Any:
    return {"message": message}


def _cohere(code: str | None, message: str) -> Any:
    return {"id": "8d1f", "message": message}


def _mistral(code: str | None, message: str) -> Any:
    return {"object": "error", "message": message, "type": code, "param": None, "code": None}


def _ollama(code: str | None, message: str) -> Any:
    return {"error": message}


_FORMS = {
    "openai": _openai, "openai-responses": _openai, "azure": _openai, "anthropic": _anthropic,
    "gemini": _google, "vertex": _google, "bedrock": _bedrock, "cohere": _cohere,
    "mistral": _mistral, "ollama": _ollama, "deepseek": _openai,
}  # fmt: skip

# vendor, status, code, message, kind: as the providers' own pages and descriptions have them
# (OpenAI's "Error codes", Anthropic's "Errors", google.rpc.Code, the service model of
# bedrock-runtime, Cohere's and Mistral's OpenAPI descriptions, Ollama's docs/api/errors).
_LONG = (
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000"
)
_DOCUMENTED: tuple[tuple[str, int, str | None, str, str], ...] = (
    ("openai", 401, "invalid_api_key", "Incorrect API key provided: sk-ab*ef.", "authentication"),
    ("openai", 403, "unsupported_country_region_territory", "Not supported here", "permission"),
    ("openai", 429, "insufficient_quota", "You exceeded your current quota.", "payment"),
    ("openai", 429, "rate_limit_exceeded", "Rate limit reached for gpt-4o", "rate_limit"),
    ("openai", 400, "context_length_exceeded", _LONG, "context_length"),
    ("openai", 400, "content_policy_violation", "Rejected by our safety system", "content_policy"),
    ("openai", 500, None, "The server had an error while processing your request", "server"),
    ("openai", 503, None, "The engine is currently overloaded", "overloaded"),
    ("openai-responses", 400, "context_length_exceeded", _LONG, "context_length"),
    ("openai-responses", 429, "rate_limit_exceeded", "Rate limit reached", "rate_limit"),
    ("openai-responses", 401, "invalid_api_key", "Incorrect API key", "authentication"),
    ("openai-responses", 500, "server_error", "Something went wrong", "server"),
    ("azure", 400, "content_filter", "The response was filtered", "content_policy"),
    ("azure", 429, "429", "Requests have exceeded the token rate limit", "rate_limit"),
    ("azure", 403, "403", "Traffic is not from an approved private endpoint", "permission"),
    ("deepseek", 402, "invalid_request_error", "Insufficient Balance", "payment"),
    ("anthropic", 401, "authentication_error", "invalid x-api-key", "authentication"),
    ("anthropic", 402, "billing_error", "Payment required", "payment"),
    ("anthropic", 403, "permission_error", "Your key has no access", "permission"),
    ("anthropic", 413, "request_too_large", "Request exceeds 32 MB", "too_large"),
    ("anthropic", 429, "rate_limit_error", "You have exceeded your rate limit", "rate_limit"),
    ("anthropic", 400, "invalid_request_error", "prompt is too long: 9 > 8", "context_length"),
    (
        "anthropic", 400, "invalid_request_error", "Output blocked by content filtering policy",
        "content_policy",
    ),
    ("anthropic", 500, "api_error", "Internal server error", "server"),
    ("anthropic", 529, "overloaded_error", "Overloaded", "overloaded"),
    ("gemini", 400, "INVALID_ARGUMENT", "API key not valid. Pass a valid one", "authentication"),
    ("gemini", 403, "PERMISSION_DENIED", "The caller has no permission", "permission"),
    ("gemini", 429, "RESOURCE_EXHAUSTED", "Resource has been exhausted", "rate_limit"),
    (
        "gemini", 400, "INVALID_ARGUMENT",
        "The input token count (9) exceeds the maximum number of tokens allowed (8).",
        "context_length",
    ),
    ("gemini", 503, "UNAVAILABLE", "The model is overloaded", "overloaded"),
    ("gemini", 500, "INTERNAL", "An internal error has occurred", "server"),
    ("vertex", 401, "UNAUTHENTICATED", "Request had invalid credentials", "authentication"),
    ("vertex", 504, "DEADLINE_EXCEEDED", "Deadline expired", "timeout"),
    ("bedrock", 403, "AccessDeniedException", "You have no access to the model", "permission"),
    ("bedrock", 403, "ExpiredTokenException", "The token has expired", "authentication"),
    ("bedrock", 429, "ThrottlingException", "Too many requests", "rate_limit"),
    ("bedrock", 400, "ValidationException", "Input is too long for the model", "context_length"),
    ("bedrock", 408, "ModelTimeoutException", "Model took too long", "timeout"),
    ("bedrock", 424, "ModelErrorException", "The model failed", "server"),
    ("bedrock", 500, "InternalServerException", "Internal error", "server"),
    ("bedrock", 503, "ServiceUnavailableException", "Try again", "overloaded"),
    ("cohere", 401, None, "invalid api token", "authentication"),
    ("cohere", 402, None, "Please add or update your payment method", "payment"),
    ("cohere", 400, None, "too many tokens: size limit exceeded by 9 tokens", "context_length"),
    ("cohere", 429, None, "You are using a Trial key, limited to 20 calls / minute", "rate_limit"),
    ("cohere", 500, None, "internal server error", "server"),
    ("mistral", 401, None, "Unauthorized", "authentication"),
    ("mistral", 403, "guardrail_violation", "Blocked by a guardrail", "content_policy"),
    ("mistral", 429, "rate_limited", "Rate limit exceeded", "rate_limit"),
    ("mistral", 503, None, "Service unavailable.", "overloaded"),
    ("ollama", 400, None, "the input length exceeds the context length", "context_length"),
    ("ollama", 404, None, "model 'x' not found", "not_found"),
    ("ollama", 500, None, "the model failed to generate a response", "server"),
    ("ollama", 502, None, "the cloud model cannot be reached", "server"),
)  # fmt: skip


def documented_errors() -> list[ProviderError]:
    """One of each class that a vendor has words for."""
    found = []
    for name, status, code, message, kind in _DOCUMENTED:
        headers = {"content-type": "application/json"}
        if name == "bedrock" and code is not None:
            headers["x-amzn-errortype"] = code
        if kind == "rate_limit":
            headers["retry-after"] = "7"
        body = json.dumps(_FORMS[name](code, message)).encode()
        at = f"{name} {status} {kind}"
        found.append(ProviderError(at, BY_NAME[name], status, headers, body, kind, message))
    return found
