"""How the gateway authenticates to a provider: keys used in turn, tokens, signatures.

A key that the provider refused rests. If it has no money left it rests for all models; if its rate
is limited, or it is unknown or not permitted, it rests for the model it was used for: providers
limit by model, and a key made for some models is refused for others. What a provider says about a
key does not count against the target: another key is tried first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace.gateway.settings.secret import Secret
from headrace.protocol.neutral.failure import Failure, FailureKind

# People fix wrong keys and empty accounts; a request now and then notices it.
_REFUSED_REST_S = 300.0
# A single 401 may pass; the rest doubles while they go on.
_FIRST_WRONG_REST_S = 10.0
_FORBIDDEN_REST_S = 10.0
# If a provider does not say: short enough to be waited for (`retries.backoff_max_s`).
_LIMITED_REST_S = 5.0
# A provider may say a day; a request an hour costs nothing.
_MOST_REST_S = 3600.0
# Clients may choose models by name; resting ones must not fill memory.
_MOST_OF_MODELS = 1000
_MOST_SAID_CHARS = 200
_CURE = (
    "once the key or its account is in order, a reload (`kill -HUP`, POST /api/reload) ends it at "
    "once"
)


class Outgoing(NamedTuple):
    """The parts of a request that a signature covers."""

    method: str
    host: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Credential(Protocol):
    """One credential, of perhaps several."""

    async def headers(self, outgoing: Outgoing) -> tuple[tuple[str, str], ...]:
        """Headers to add. Raises UpstreamError if they are not available now."""


class Auth(Protocol):
    """A source of the credential that a request is sent with."""

    def pick(self, now_s: float, model: str = "") -> Credential | None:
        """The next credential to use; None if all rest. `model` is the provider's name for it,
        here and below; "" for requests without a model."""

    def failed(
        self, credential: Credential, failure: Failure, now_s: float, model: str = ""
    ) -> bool:
        """Record a failure; return whether the credential is at fault and another is left."""

    def others(self, credential: Credential, now_s: float, model: str = "") -> int:
        """The number of other credentials that may be used now."""

    def rests_s(self, now_s: float, model: str = "") -> float:
        """How long until one may be used again."""

    def why(self, now_s: float, model: str = "") -> Failure | None:
        """Why the first to be usable again rests; None if one may be used now."""


class RefusedKey(NamedTuple):
    """A key that begins to rest because its provider refused it as wrong or without money."""

    provider: str
    key: int
    """Its place among `keys`, from 1."""
    keys: int
    kind: FailureKind
    status: int | None


OnRefused = Callable[[RefusedKey], None]


class NoAuth:
    """The empty credential, for providers without authentication."""

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
    """The rest of a credential."""

    until_s: float
    why: Failure | None
    for_s: float = 0.0
    """Its whole length."""


_NO_REST = _Rest(0.0, None)


class InTurn:
    """A list of credentials, used in turn."""

    def __init__(self, credentials: tuple[Credential, ...]) -> None:
        self._credentials = credentials
        self._next = 0
        self._rests = [_NO_REST] * len(credentials)
        self._told_until_s = [0.0] * len(credentials)
        self._of_models: dict[tuple[int, str], _Rest] = {}
        self._provider = ""
        self._on_refused: OnRefused | None = None

    def tell(self, provider: str, on_refused: OnRefused) -> None:
        """Report refused keys of `provider` to `on_refused` from now on."""
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
        at = next((n for n, known in enumerate(self._credentials) if known is credential), None)
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
            requested_s = failure.retry_after_s
            rest_s = _LIMITED_REST_S if requested_s is None else min(requested_s, _MOST_REST_S)
            self._rest_of(at, model, _Rest(now_s + rest_s, failure), now_s)
        else:
            return False
        return self.others(credential, now_s, model) > 0

    def others(self, credential: Credential, now_s: float, model: str = "") -> int:
        credentials = enumerate(self._credentials)
        return sum(
            self._rest(at, model).until_s <= now_s
            for at, other in credentials
            if other is not credential
        )

    def count(self, now_s: float) -> tuple[int, int]:
        """The number of keys, and how many of them rest as wrong or without money."""
        return len(self._credentials), len(self._whys(now_s))

    def refusals(self, now_s: float) -> tuple[str, ...]:
        """Why each key rests that is wrong or without money, in the provider's words."""
        return tuple(
            f"key {at + 1} of {len(self._rests)}: {failure_summary(why)}: "
            f"{why.message[:_MOST_SAID_CHARS]}"
            for at, why in sorted(self._whys(now_s).items())
        )

    def _whys(self, now_s: float) -> dict[int, Failure]:
        """Reasons by the key's place, from 0; those for all models come before those of one."""
        wrong = {
            at: rest.why
            for (at, _), rest in self._of_models.items()
            if rest.until_s > now_s and rest.why is not None and rest.why.kind == "authentication"
        }
        whole = {
            at: rest.why
            for at, rest in enumerate(self._rests)
            if rest.until_s > now_s and rest.why is not None
        }
        return wrong | whole

    def rests_s(self, now_s: float, model: str = "") -> float:
        return max(0.0, self._first(model).until_s - now_s)

    def why(self, now_s: float, model: str = "") -> Failure | None:
        first = self._first(model)
        return first.why if first.until_s > now_s else None

    def _first(self, model: str) -> _Rest:
        if len(self._rests) == 1:  # the usual case, and it is on the path of each request
            return self._rest(0, model)
        rests = (self._rest(at, model) for at in range(len(self._rests)))
        return min(rests, key=lambda rest: rest.until_s, default=_NO_REST)

    def _rest(self, at: int, model: str) -> _Rest:
        whole = self._rests[at]
        if not self._of_models:
            return whole
        own = self._of_models.get((at, model), _NO_REST)
        return own if own.until_s > whole.until_s else whole

    def _wrong(self, at: int, model: str, failure: Failure, now_s: float) -> _Rest:
        """The rest for a 401: longer if another came just before."""
        last = self._of_models.get((at, model), _NO_REST)
        if last.why is None or last.why.kind != "authentication":
            for_s = _FIRST_WRONG_REST_S
        elif now_s < last.until_s:  # it was already under way
            return last
        else:
            again = now_s < last.until_s + _REFUSED_REST_S
            for_s = min(2 * last.for_s, _REFUSED_REST_S) if again else _FIRST_WRONG_REST_S
        return _Rest(now_s + for_s, failure, for_s)

    def _refused(self, at: int, failure: Failure, now_s: float) -> None:
        """Report it, once while it goes on."""
        if now_s < self._told_until_s[at] or self._on_refused is None:
            return
        self._told_until_s[at] = now_s + _REFUSED_REST_S
        keys = len(self._credentials)
        self._on_refused(RefusedKey(self._provider, at + 1, keys, failure.kind, failure.status))

    def _rest_of(self, at: int, model: str, rest: _Rest, now_s: float) -> None:
        every = self._of_models
        every.pop((at, model), None)
        if len(every) >= _MOST_OF_MODELS:
            over = [key for key, rest in every.items() if rest.until_s <= now_s]
            for key in over or [next(iter(every))]:
                del every[key]
        every[at, model] = rest


def failure_summary(failure: Failure) -> str:
    """Its kind and status: safe for any client, while a provider's words may quote a request."""
    return f"{failure.kind} {failure.status}" if failure.status else failure.kind


def all_rest(provider: str, auth: Auth, now_s: float, model: str) -> Failure:
    """The failure of a request when no key of `provider` may be used for a model now."""
    why, rests_s = auth.why(now_s, model), auth.rests_s(now_s, model)
    message = f"all keys of {provider} rest for {rests_s:.1f} s"
    if why is None:
        return Failure(kind="rate_limit", message=message, retry_after_s=rests_s)
    since = "a key was refused" if why.kind == "payment" else f"{model} was refused"
    message = f"{message}, since {since}: {failure_summary(why)}"
    if why.kind in ("authentication", "payment"):
        message += f"; {_CURE}"
    return Failure(kind=why.kind, message=message, retry_after_s=rests_s)
