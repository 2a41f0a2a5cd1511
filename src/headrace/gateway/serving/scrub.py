"""A provider's words without our secrets: some quote the key that they refuse."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.protocol.neutral.failure import Failure

_INSTEAD = "[secret]"
# Shorter ones are words ("Bearer", "true"), and no key is so short.
_LEAST_CHARS = 12


def without_secrets(failure: Failure, headers: Iterable[tuple[str, str]]) -> Failure:
    """headers: those that went out and are nobody's business but the provider's."""
    longest_first = _secrets(headers)
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


def bytes_without_secrets(data: bytes, headers: Iterable[tuple[str, str]]) -> bytes:
    """The same of what is passed on as it came."""
    for one in _secrets(headers):
        data = data.replace(one.encode(errors="replace"), _INSTEAD.encode())
    return data


def _secrets(headers: Iterable[tuple[str, str]]) -> list[str]:
    """Values and their words, the longest first."""
    found: set[str] = set()
    for _, value in headers:
        found.update(one for one in (value, *value.split()) if len(one) >= _LEAST_CHARS)
    return sorted(found, key=len, reverse=True)


def _scrubbed(text: str, secrets: list[str]) -> str:
    for one in secrets:
        text = text.replace(one, _INSTEAD)
    return text
