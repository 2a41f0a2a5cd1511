"""A provider's words without our secrets: some quote the key that they refuse."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace.protocol.neutral.failure import Failure

Header = tuple[str, str]

_INSTEAD = "[secret]"
_INSTEAD_BYTES = _INSTEAD.encode()
# Shorter ones are words ("Bearer", "true"), and no key is so short.
_LEAST_CHARS = 12


def without_secrets(failure: Failure, headers: Iterable[Header]) -> Failure:
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


class PassedScrub:
    """What is passed on as it came, whole events at a time, without our secrets.

    proof: headers that show the provider who we are. Nobody says them by chance, so they are looked
    for in all that passes. others: those that settings give every request; they may be secret, but
    answers use words of theirs ("application/json"), so errors and comments alone are searched.
    has_failed: set it once the stream told of an error.
    """

    def __init__(self, proof: tuple[Header, ...], others: tuple[Header, ...]) -> None:
        self.has_failed = False
        self._proof = _spellings(proof)
        self._others = [one for one in others if len(one[1]) >= _LEAST_CHARS]

    def clean(self, events: bytes) -> bytes:
        """The same bytes where no secret is in them."""
        for word in self._proof:
            events = events.replace(word, _INSTEAD_BYTES)
        if self._others and (self.has_failed or _may_quote_headers(events)):
            for word in _spellings(self._others):
                events = events.replace(word, _INSTEAD_BYTES)
        return events


def _may_quote_headers(events: bytes) -> bool:
    """Whether an error or a comment is in them."""
    return b"error" in events or events.startswith(b":") or b"\n:" in events


def _spellings(headers: Iterable[Header]) -> list[bytes]:
    """Their secrets as bytes, and as JSON that escapes its slashes has them."""
    spelled: list[bytes] = []
    for one in _secrets(headers):
        spelled.append(one.encode(errors="replace"))
        if "/" in one:
            spelled.append(spelled[-1].replace(b"/", b"\\/"))
    return spelled


def _secrets(headers: Iterable[Header]) -> list[str]:
    """Values and their words, the longest first."""
    found: set[str] = set()
    for _, value in headers:
        found.update(one for one in (value, *value.split()) if len(one) >= _LEAST_CHARS)
    return sorted(found, key=len, reverse=True)


def _scrubbed(text: str, secrets: list[str]) -> str:
    for one in secrets:
        text = text.replace(one, _INSTEAD)
    return text
