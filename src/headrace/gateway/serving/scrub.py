"""A provider's messages without the gateway's secrets: some quote the key that they refuse."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.protocol.neutral.failure import Failure

Header = tuple[str, str]

INSTEAD = "[secret]"
# Shorter ones are words ("Bearer", "true"); no key is so short.
_LEAST_CHARS = 12


def without_secrets(failure: Failure, headers: Iterable[Header]) -> Failure:
    """The failure without secrets from `headers`, which only the provider may see."""
    longest_first = secrets_in(headers)
    if failure.as_told is not None:
        body = _scrubbed(failure.as_told.body, _in_json(longest_first))
        told = msgspec.structs.replace(failure.as_told, body=body)
        failure = msgspec.structs.replace(failure, as_told=told)
    texts = (failure.message, failure.code or "", failure.param or "", failure.request_id or "")
    if not any(secret in text for secret in longest_first for text in texts):
        return failure
    message, code, param, request_id = (_scrubbed(text, longest_first) for text in texts)
    return msgspec.structs.replace(
        failure,
        message=message,
        code=code or None,
        param=param or None,
        request_id=request_id or None,
    )


def secrets_in(headers: Iterable[Header]) -> list[str]:
    """Header values and their words, the longest first."""
    secrets: set[str] = set()
    for _, value in headers:
        secrets.update(word for word in (value, *value.split()) if len(word) >= _LEAST_CHARS)
    return sorted(secrets, key=len, reverse=True)


def _in_json(secrets: list[str]) -> list[str]:
    """The secrets as they appear within JSON text, and as they are."""
    written = (msgspec.json.encode(secret).decode()[1:-1] for secret in secrets)
    return [spelled for spellings in zip(written, secrets, strict=True) for spelled in spellings]


def _scrubbed(text: str, secrets: list[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, INSTEAD)
    return text
