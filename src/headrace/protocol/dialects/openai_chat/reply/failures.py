"""Errors of servers with OpenAI's format, by code first, by words if there is no code.

Bodies seen: {"error": {message, type, param, code}} (OpenAI, most), {"error": "text"} (Ollama,
TGI, xAI), {"detail": text or list} (FastAPI), {"message": ...} and {"object": "error", ...} (vLLM
before 0.10), a list of errors (Google), {"error": {..., "metadata": {"raw"}}} (OpenRouter).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from headrace.protocol.dialects.account_limit import is_of_request_alone
from headrace.protocol.dialects.openai_chat.values import mapping, objects, text
from headrace.protocol.dialects.status_failure import lower_names, retry_after_s
from headrace.protocol.neutral.dialect import Headers
from headrace.protocol.neutral.failure import Failure, FailureKind

_MOST_CHARACTERS = 2000
_MOST_RAW_CHARACTERS = 500
_MOST_BODY_BYTES = 2**20

_CODES: dict[str, FailureKind] = {
    "context_length_exceeded": "context_length",
    "context_window_exceeded": "context_length",
    "exceed_context_size_error": "context_length",  # llama.cpp
    "content_filter": "content_policy",
    "content_policy_violation": "content_policy",
    "responsibleaipolicyviolation": "content_policy",  # Azure
    "moderation_blocked": "content_policy",
    "data_inspection_failed": "content_policy",  # Alibaba
    "datainspectionfailed": "content_policy",
    "invalid_prompt": "content_policy",  # OpenAI's reasoning models
    "cyber_policy_violation": "content_policy",
    "account_limit": "account_limit",  # ours, of another gateway
    "insufficient_quota": "payment",
    "billing_hard_limit_reached": "payment",
    "billing_not_active": "payment",
    "insufficient_balance": "payment",
    "insufficient_credits": "payment",
    "invalid_api_key": "authentication",
    "wrong_api_key": "authentication",  # Cerebras
    "invalid_authentication_error": "authentication",
    "model_not_found": "not_found",
    "deploymentnotfound": "not_found",
    "model_decommissioned": "not_found",  # Groq, 400
    "rate_limit_exceeded": "rate_limit",
    "too_many_requests": "rate_limit",
    "slow_down": "overloaded",
    "server_overloaded": "overloaded",
    "capacity_exceeded": "overloaded",
    # The model's output was at fault and not the request: another try may do (Groq, 400).
    "tool_use_failed": "server",
    "json_validate_failed": "server",
    "output_parse_failed": "server",
}
_STATUSES: dict[int, FailureKind] = {
    401: "authentication",
    402: "payment",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    429: "rate_limit",
    498: "overloaded",  # Groq: flex capacity
    503: "overloaded",
    504: "timeout",
    524: "timeout",  # Cloudflare
    529: "overloaded",
}
_CONTEXT_WORDS = (
    "maximum context length",
    "context_length_exceeded",
    "maximum prompt length",
    "maximum model length",
    "available context size",
    "context window",
    "context length exceeded",
    "exceeds the context",
    "prompt is too long",
    "input is too long",
    "reduce the length of the messages",
    "input token count",
)
_POLICY_WORDS = (
    "content management policy",
    "content policy",
    "content_policy",
    "usage policy",
    "flagged by moderation",
    "requires moderation",
)
_PAYMENT_WORDS = (
    "exceeded your current quota",
    "insufficient balance",
    "credit balance",
    "insufficient credits",
    "requires more credits",
)
_IDS = ("x-request-id", "apim-request-id", "request-id", "x-ms-request-id")


class _ErrorFields(NamedTuple):
    message: str = ""
    code: str | None = None
    kind: str | None = None
    param: str | None = None
    status: int | None = None


def read_failure(status: int, headers: Headers, body: bytes) -> Failure:
    """Any body at all; what does not parse gives a Failure by the status alone."""
    fields = _error_fields(_decoded(body))
    named = lower_names(headers)
    return Failure(
        kind=_kind(status, fields),
        message=fields.message or _plain(body) or f"the provider answered with status {status}",
        status=status,
        code=fields.code or fields.kind,
        param=fields.param,
        retry_after_s=retry_after_s(named),
        request_id=next((named[name] for name in _IDS if named.get(name)), None),
    )


def failure_in(body: dict[str, Any]) -> Failure | None:
    """The error that a reply of status 200, a chunk or a choice is; None if it is none."""
    error = body.get("error")
    if not error and (
        "choices" in body or ("message" in body and isinstance(body["message"], dict))
    ):
        return None
    odd = body.get("object") == "error" or bool(text(body.get("detail")))
    if not error and not odd and not (text(body.get("message")) and "choices" not in body):
        return None
    fields = _error_fields(body)
    return Failure(
        kind=_kind(fields.status, fields),
        message=fields.message or "the provider gave up without saying why",
        status=fields.status,
        code=fields.code or fields.kind,
        param=fields.param,
    )


def _decoded(body: bytes) -> Any:
    if len(body) > _MOST_BODY_BYTES:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return None


def _plain(body: bytes) -> str:
    """The words of a body that is text; pages of proxies say nothing worth showing."""
    words = body[:_MOST_RAW_CHARACTERS].decode("utf-8", errors="replace").strip()
    return "" if words.startswith(("<", "{", "[")) else words


def _error_fields(body: Any) -> _ErrorFields:
    if isinstance(body, list):
        body = body[0] if body else None
    if isinstance(body, str):
        return _ErrorFields(body[:_MOST_CHARACTERS])
    if not isinstance(body, dict):
        return _ErrorFields()
    error = body.get("error")
    if isinstance(error, list):
        error = error[0] if error else None
    if not error:
        listed = objects(body.get("errors"))
        error = listed[0] if listed else body
    if not isinstance(error, dict):
        return _ErrorFields(text(error)[:_MOST_CHARACTERS], *_names(body))
    return _ErrorFields(_message(error)[:_MOST_CHARACTERS], *_names(error))


def _names(error: dict[str, Any]) -> tuple[str | None, str | None, str | None, int | None]:
    """code, type, param, status. A code that is a number is a status."""
    code: Any = error.get("code")
    status: Any = code if isinstance(code, int) else error.get("status_code")
    if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3:
        code, status = None, int(code)
    inner = text(mapping(error.get("innererror")).get("code"))
    named = (code if isinstance(code, str) and code else None) or inner or None
    proper = isinstance(status, int) and not isinstance(status, bool) and 400 <= status <= 599
    return (
        named,
        text(error.get("type")) or text(error.get("status")) or None,
        text(error.get("param")) or None,
        status if proper else None,
    )


def _message(error: dict[str, Any]) -> str:
    words: Any = error.get("message") or error.get("detail") or error.get("error")
    if isinstance(words, dict):
        words = words.get("message") or words.get("detail")
    if isinstance(words, list):
        # FastAPI: what is wrong, and where.
        words = "; ".join(
            f"{_place(fault.get('loc'))}: {text(fault.get('msg'))}" for fault in objects(words)
        )
    raw = text(mapping(error.get("metadata")).get("raw"))
    words = text(words)
    return f"{words}: {raw[:_MOST_RAW_CHARACTERS]}" if raw else words


def _place(at: Any) -> str:
    return ".".join(str(key) for key in at) if isinstance(at, list) else text(at)


def _kind(status: int | None, fields: _ErrorFields) -> FailureKind:
    if is_of_request_alone(status, fields.message, fields.code, fields.kind):
        return "account_limit"
    for name in (fields.code, fields.kind):
        known = _CODES.get(name.lower()) if name else None
        if known is not None:
            return known
    words = fields.message.lower()
    # A rate limit counted in tokens speaks of too many tokens as well.
    if status not in (401, 402, 404, 429):
        if any(phrase in words for phrase in _CONTEXT_WORDS):
            return "context_length"
        if any(phrase in words for phrase in _POLICY_WORDS):
            return "content_policy"
    if any(phrase in words for phrase in _PAYMENT_WORDS):
        return "payment"
    if status is None:
        return _kind_of_type(fields.kind)
    if status in _STATUSES:
        return _STATUSES[status]
    return "server" if status >= 500 else "bad_request"


def _kind_of_type(kind: str | None) -> FailureKind:
    if kind in ("invalid_request_error", "BadRequestError"):
        return "bad_request"
    if kind in ("rate_limit_error", "tokens", "requests"):
        return "rate_limit"
    if kind in ("overloaded_error", "service_unavailable"):
        return "overloaded"
    return "server"
