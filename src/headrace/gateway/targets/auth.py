"""How a provider knows who we are: keys used in turn, tokens, signatures.

A key that the provider refused rests. One that has no money left rests for all models; one that
asked too much, is not known or may not, for the model it was used for alone: providers limit by
model, and a key that is made for some of them is a wrong one elsewhere. What a provider says of one
key says nothing of the target: another key is tried first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace.gateway.settings.secret import Secret
from headrace.protocol.neutral.failure import Failure, FailureKind

# Wrong keys and empty accounts are mended by people; asking now and then notices it.
_REFUSED_REST_S = 300.0
# One 401 may be a moment's; the rest doubles while they go on.
_FIRST_WRONG_REST_S = 10.0
_FORBIDDEN_REST_S = 10.0
# Where a provider does not say: short enough to be waited for (`retries.backoff_most_s`).
_LIMITED_REST_S = 5.0
# A provider may say a day; asking once an hour costs nothing.
_MOST_REST_S = 3600.0
# Clients may choose models by name; those that rest must not fill memory.
_MOST_OF_MODELS = 1000
_MOST_SAID_CHARS = 200
_CURE = (
    "once the key or its account is in order, a reload (`kill -HUP`, POST /api/reload) ends it at "
    "once"
)


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

    def pick(self, now_s: float, model: str = "") -> Credential | None:
        """The next that may be used; None if all rest. model: as the provider calls it, here and
        below; "" for what is of none."""

    def failed(
        self, credential: Credential, failure: Failure, now_s: float, model: str = ""
    ) -> bool:
        """What came of it; whether it is the credential's fault and another one is left."""

    def others(self, credential: Credential, now_s: float, model: str = "") -> int:
        """How many but this one may be used now."""

    def rests_s(self, now_s: float, model: str = "") -> float:
        """How long until one may be used again."""

    def why(self, now_s: float, model: str = "") -> Failure | None:
        """For what the first to be used again rests; None if one may be used."""


class RefusedKey(NamedTuple):
    """A key begins to rest that its provider refused as wrong or without money. key: its place
    among `keys`, from 1."""

    provider: str
    key: int
    keys: int
    kind: FailureKind
    status: int | None


OnRefused = Callable[[RefusedKey], None]


class NoAuth:
    """For providers that ask for nothing."""

    def pick(self, now_s: float, model: str = "") -> Credential | None:
        return self

    async def headers(self, outgoing: Outgoing) -> tuple[tuple[str, str], ...]:
        return ()

    def failed(
        self, credential: Credential, failure: Failure, now_s: float, model: str = ""
    ) -> bool:
        return False

    def others(self, credential: Credential, now_s: float, model: str = "") -> int:
        return 0

    def rests_s(self, now_s: float, model: str = "") -> float:
        return 0.0

    def why(self, now_s: float, model: str = "") -> Failure | None:
        return None


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


class _Rest(NamedTuple):
    """for_s: how long it is in all."""

    until_s: float
    why: Failure | None
    for_s: float = 0.0


_NO_REST = _Rest(0.0, None)


class InTurn:
    """Several credentials, each used as often as the others."""

    def __init__(self, credentials: tuple[Credential, ...]) -> None:
        self._credentials = credentials
        self._next = 0
        self._rests = [_NO_REST] * len(credentials)
        self._told_until_s = [0.0] * len(credentials)
        self._of_models: dict[tuple[int, str], _Rest] = {}
        self._provider = ""
        self._on_refused: OnRefused | None = None

    def tell(self, provider: str, on_refused: OnRefused) -> None:
        """It hears of keys that are refused from now on. provider: its name."""
        self._provider, self._on_refused = provider, on_refused

    def pick(self, now_s: float, model: str = "") -> Credential | None:
        for _ in self._credentials:
            at = self._next
            self._next = (at + 1) % len(self._credentials)
            if self._rest(at, model).until_s <= now_s:
                return self._credentials[at]
        return None

    def failed(
        self, credential: Credential, failure: Failure, now_s: float, model: str = ""
    ) -> bool:
        at = next((n for n, one in enumerate(self._credentials) if one is credential), None)
        if at is None:
            return False
        if failure.kind == "payment":
            self._rests[at] = _Rest(now_s + _REFUSED_REST_S, failure)
            self._refused(at, failure, now_s)
        elif failure.kind == "authentication":
            self._rest_of(at, model, self._wrong(at, model, failure, now_s), now_s)
            self._refused(at, failure, now_s)
        elif failure.kind == "permission":
            self._rest_of(at, model, _Rest(now_s + _FORBIDDEN_REST_S, failure), now_s)
        elif failure.kind == "rate_limit":
            asked_s = failure.retry_after_s
            rest_s = _LIMITED_REST_S if asked_s is None else min(asked_s, _MOST_REST_S)
            self._rest_of(at, model, _Rest(now_s + rest_s, failure), now_s)
        else:
            return False
        return self.others(credential, now_s, model) > 0

    def others(self, credential: Credential, now_s: float, model: str = "") -> int:
        every = enumerate(self._credentials)
        return sum(
            self._rest(at, model).until_s <= now_s for at, one in every if one is not credential
        )

    def count(self, now_s: float) -> tuple[int, int]:
        """How many there are, and how many of them rest as wrong or without money."""
        return len(self._credentials), len(self._whys(now_s))

    def refusals(self, now_s: float) -> tuple[str, ...]:
        """Of each key that rests as wrong or without money, why, in the provider's words."""
        return tuple(
            f"key {at + 1} of {len(self._rests)}: {said_of(why)}: {why.message[:_MOST_SAID_CHARS]}"
            for at, why in sorted(self._whys(now_s).items())
        )

    def _whys(self, now_s: float) -> dict[int, Failure]:
        """By the key's place, from 0; what holds for all models before what is of one."""
        wrong = {
            at: one.why
            for (at, _), one in self._of_models.items()
            if one.until_s > now_s and one.why is not None and one.why.kind == "authentication"
        }
        whole = {
            at: one.why
            for at, one in enumerate(self._rests)
            if one.until_s > now_s and one.why is not None
        }
        return wrong | whole

    def rests_s(self, now_s: float, model: str = "") -> float:
        return max(0.0, self._first(model).until_s - now_s)

    def why(self, now_s: float, model: str = "") -> Failure | None:
        first = self._first(model)
        return first.why if first.until_s > now_s else None

    def _first(self, model: str) -> _Rest:
        if len(self._rests) == 1:  # as with most, and asked for each request
            return self._rest(0, model)
        rests = (self._rest(at, model) for at in range(len(self._rests)))
        return min(rests, key=lambda one: one.until_s, default=_NO_REST)

    def _rest(self, at: int, model: str) -> _Rest:
        whole = self._rests[at]
        if not self._of_models:
            return whole
        own = self._of_models.get((at, model), _NO_REST)
        return own if own.until_s > whole.until_s else whole

    def _wrong(self, at: int, model: str, failure: Failure, now_s: float) -> _Rest:
        """The rest for a 401: longer where another has been but just now."""
        last = self._of_models.get((at, model), _NO_REST)
        if last.why is None or last.why.kind != "authentication":
            for_s = _FIRST_WRONG_REST_S
        elif now_s < last.until_s:  # was under way with it
            return last
        else:
            again = now_s < last.until_s + _REFUSED_REST_S
            for_s = min(2 * last.for_s, _REFUSED_REST_S) if again else _FIRST_WRONG_REST_S
        return _Rest(now_s + for_s, failure, for_s)

    def _refused(self, at: int, failure: Failure, now_s: float) -> None:
        """Tells of it, once while it goes on."""
        if now_s < self._told_until_s[at] or self._on_refused is None:
            return
        self._told_until_s[at] = now_s + _REFUSED_REST_S
        keys = len(self._credentials)
        self._on_refused(RefusedKey(self._provider, at + 1, keys, failure.kind, failure.status))

    def _rest_of(self, at: int, model: str, rest: _Rest, now_s: float) -> None:
        every = self._of_models
        every.pop((at, model), None)
        if len(every) >= _MOST_OF_MODELS:
            over = [key for key, one in every.items() if one.until_s <= now_s]
            for key in over or [next(iter(every))]:
                del every[key]
        every[at, model] = rest


def said_of(failure: Failure) -> str:
    """Its kind and status: what anybody may be told, as a provider's words quote what was sent."""
    return f"{failure.kind} {failure.status}" if failure.status else failure.kind


def all_rest(provider: str, auth: Auth, now_s: float, model: str) -> Failure:
    """What it is to a request that no key may be used for a model now. provider: its name."""
    why, rests_s = auth.why(now_s, model), auth.rests_s(now_s, model)
    said = f"all keys of {provider} rest for {rests_s:.1f} s"
    if why is None:
        return Failure(kind="rate_limit", message=said, retry_after_s=rests_s)
    since = "one was refused" if why.kind == "payment" else f"{model} was refused"
    said = f"{said}, since {since}: {said_of(why)}"
    if why.kind in ("authentication", "payment"):
        said += f"; {_CURE}"
    return Failure(kind=why.kind, message=said, retry_after_s=rests_s)
