"""The caller of a request, by its key, wherever its dialect puts that."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping

from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.caller import ADMIN, MASTER, Caller
from headrace.gateway.accounts.errors import MissingKeyError, ModelNotAllowedError
from headrace.gateway.client_address import ADDRESS
from headrace.gateway.guests import Guests
from headrace.gateway.routing.router import Router
from headrace.gateway.settings.secret import Secret

_BEARER = "bearer "
# Headers of Anthropic's, Azure's and Google's clients.
_KEY_HEADERS = ("x-api-key", "api-key", "x-goog-api-key")


class Access:
    """The identification of callers by their keys.

    `accounts` is None if keys are not required. `master` is a key that may do everything, `own_key`
    that of the gateway's own admin page, None without one. `metrics` is a key that may only read
    the gateway's state.
    """

    def __init__(
        self,
        accounts: Accounts | None,
        master: Secret | None,
        own_key: str | None = None,
        guests: Guests | None = None,
        metrics: Secret | None = None,
    ) -> None:
        """`guests` gives callers without a key, where none is required, their limits; None means
        that they have none."""
        self._guests = guests
        self._accounts = accounts
        self._own_key = None if own_key is None else own_key.encode()
        self._master = None if master is None else master.reveal().encode()
        self._metrics = None if metrics is None else metrics.reveal().encode()

    def caller(self, headers: Mapping[str, str]) -> Caller | None:
        """The caller; None if keys are not required. Raises RefusedKeyError."""
        if self._own_key is not None and _is_same(presented_key(headers), self._own_key):
            return ADMIN
        if self._accounts is None:
            return None if self._guests is None else self._guests.caller(headers[ADDRESS])
        key = presented_key(headers)
        if not key:
            raise MissingKeyError(without_scheme=_has_no_scheme(headers))
        if self.is_master(headers):
            return MASTER
        return self._accounts.caller(key)

    def has_several_keys(self) -> bool:
        """Whether there is more than one key besides the master key."""
        return self._accounts is not None and len(self._accounts.roster) > 1

    def shows_all(self, headers: Mapping[str, str]) -> bool:
        """Whether the caller may see the gateway's state: with the master key or the key for
        metrics, or anyone if keys are not required and there is no key for metrics; customers' keys
        may not. Compared in constant time."""
        if self._metrics is None:
            return self._accounts is None or self.is_master(headers)
        return _is_same(presented_key(headers), self._metrics) or self.is_master(headers)

    def is_master(self, headers: Mapping[str, str]) -> bool:
        """Whether the key is the master key. Compared in constant time."""
        return self._master is not None and _is_same(presented_key(headers), self._master)


def _is_same(given: str, known: bytes) -> bool:
    return hmac.compare_digest(given.encode("latin-1", errors="replace"), known)


def _has_no_scheme(headers: Mapping[str, str]) -> bool:
    given = headers.get("authorization", "").strip()
    return bool(given) and given.lower() != _BEARER.strip()


def may_ask(caller: Caller | None, model: str, router: Router) -> bool:
    """Whether the caller may use the model, by its own name or another one."""
    if caller is None or not caller.allowed_models:
        return True
    return caller.may_use(model, router.own_name(model), router.with_target(model))


def check_models(caller: Caller | None, models: Iterable[str], router: Router) -> None:
    """Check every model that a request names. Fallbacks and the models of a composed one need no
    permission of their own. Raises ModelNotAllowedError."""
    for model in models:
        if caller is not None and not may_ask(caller, model, router):
            raise ModelNotAllowedError(caller.key_id, model)


def presented_key(headers: Mapping[str, str]) -> str:
    """The key in the headers; "" without one."""
    authorization = headers.get("authorization", "")
    if authorization[: len(_BEARER)].lower() == _BEARER:
        return authorization[len(_BEARER) :].strip()
    return next((headers[name] for name in _KEY_HEADERS if name in headers), "")
