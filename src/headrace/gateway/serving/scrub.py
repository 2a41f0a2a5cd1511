"""A provider's words without our secrets: some quote the key that they refuse."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.protocol.neutral.failure import Failure

Header = tuple[str, str]

INSTEAD = "[secret]"
# Shorter ones are words ("Bearer", "true"), and no key is so short.
_LEAST_CHARS = 12


def without_secrets(failure: Failure, headers: Iterable[Header]) -> Failure:
    """headers: those that went out and are nobody's business but the provider's."""
    longest_first = secrets_in(headers)
    if failure.as_told is not None:
        body = _scrubbed(failure.as_told.body, _in_json(longest_first))
        told = msgspec.structs.replace(failure.as_told, body=body)
        failure = msgspec.structs.replace(failure, as_told=told)
    said = (failure.message, failure.code or "", failure.param or "", failure.request_id or "")
    if not any(one in text for one in longest_first for text in said):
        return failure
    message, code, param, request_id = (_scrubbed(one, longest_first) for one in said)
    return msgspec.structs.replace(
        failure,
        message=message,
        code=code or None,
        param=param or None,
        request_id=request_id or None,
    )


def secrets_in(headers: Iterable[Header]) -> list[str]:
    """Values and their words, the longest first."""
    found: set[str] = set()
    for _, value in headers:
        found.update(one for one in (value, *value.split()) if len(one) >= _LEAST_CHARS)
    return sorted(found, key=len, reverse=True)


def _in_json(secrets: list[str]) -> list[str]:
    """As JSON of ours has them within a text, and as they are."""
    written = (msgspec.json.encode(one).decode()[1:-1] for one in secrets)
    return [spelled for one in zip(written, secrets, strict=True) for spelled in one]


def _scrubbed(text: str, secrets: list[str]) -> str:
    for one in secrets:
        text = text.replace(one, INSTEAD)
    return text
