"""How a provider knows who we are: keys used in turn, tokens, signatures.

A key that the provider refused rests, long if it is wrong and short if it asked too much. What a
provider says of one key says nothing of the target: another key is tried first.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headrace.gateway.settings.secret import Secret
from headrace.protocol.neutral.failure import Failure

# Wrong keys and empty accounts are mended by people; asking now and then notices it.
_REFUSED_REST_S = 300.0
_REST_S = 10.0
# A provider may say a day; asking once an hour costs nothing.
_MOST_REST_S = 3600.0


class Outgoing(NamedTuple):
    """What a signature covers."""

    method: str
    host: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Credential(Protocol):
    """One way to be known, of perhaps several."""

    async def headers(self, outgoing: Outgoing) -> tuple[tuple[str, str], ...]:
        """Headers to add. Raises UpstreamError if there are none to be had now."""


class Auth(Protocol):
    """Which credential a request goes out with."""

    def pick(self, now_s: float) -> Credential | None:
        """The next that may be used; None if all rest or are refused."""

    def failed(self, credential: Credential, failure: Failure, now_s: float) -> bool:
        """What came of it; whether it is the credential's fault and another one is left."""

    def rests_s(self, now_s: float) -> float:
        """How long until one may be used again."""


class NoAuth:
    """For providers that ask for nothing."""

    def pick(self, now_s: float) -> Credential | None:
        return self

    async def headers(self, outgoing: Outgoing) -> tuple[tuple[str, str], ...]:
        return ()

    def failed(self, credential: Credential, failure: Failure, now_s: float) -> bool:
        return False

    def rests_s(self, now_s: float) -> float:
        return 0.0


class KeyHeader:
    """A key in a header: `authorization: Bearer KEY`, `x-api-key: KEY`."""

    __slots__ = ("_name", "_secret", "_value")

    def __init__(self, secret: Secret, name: str, prefix: str = "") -> None:
        self._secret = secret
        self._name = name
        self._value = prefix + secret.reveal()

    async def headers(self, outgoing: Outgoing) -> tuple[tuple[str, str], ...]:
        return ((self._name, self._value),)

    def __repr__(self) -> str:
        return f"<{self._name} with {self._secret!r}>"


class InTurn:
    """Several credentials, each used as often as the others."""

    def __init__(self, credentials: tuple[Credential, ...]) -> None:
        self._credentials = credentials
        self._next = 0
        self._rest_until_s = [0.0] * len(credentials)

    def pick(self, now_s: float) -> Credential | None:
        for _ in self._credentials:
            at = self._next
            self._next = (at + 1) % len(self._credentials)
            if self._rest_until_s[at] <= now_s:
                return self._credentials[at]
        return None

    def failed(self, credential: Credential, failure: Failure, now_s: float) -> bool:
        at = next((n for n, one in enumerate(self._credentials) if one is credential), None)
        if at is None:
            return False
        if failure.kind in ("authentication", "payment"):
            rest_s = _REFUSED_REST_S
        elif failure.kind == "permission":  # it may be of the model and not of the key
            rest_s = _REST_S
        elif failure.kind == "rate_limit":
            asked_s = failure.retry_after_s
            rest_s = _REST_S if asked_s is None else min(asked_s, _MOST_REST_S)
        else:
            return False
        self._rest_until_s[at] = now_s + rest_s
        return any(rest <= now_s for rest in self._rest_until_s)

    def count(self, now_s: float) -> tuple[int, int]:
        """How many there are, and how many of them rest."""
        return len(self._credentials), sum(rest > now_s for rest in self._rest_until_s)

    def rests_s(self, now_s: float) -> float:
        return min((max(0.0, rest - now_s) for rest in self._rest_until_s), default=0.0)
