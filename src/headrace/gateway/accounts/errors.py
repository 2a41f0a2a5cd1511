"""Why a caller is refused, and what is wrong with a store; never with a key in the text."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.errors import HeadraceError, shown
from headrace.gateway.accounts.counters import Shortage
from headrace.protocol.neutral.dollars import NUSD_PER_USD

# Longer waits are told as a time: nobody reads 700,000 seconds.
_LONG_WAIT_S = 3600.0


class AccountsError(HeadraceError):
    """Base of the refusals of accounts. `kind` is a word for logs, metrics and an API's code."""

    kind = "accounts"


class RefusedKeyError(AccountsError):
    """Base of what may be wrong with a key that was presented."""


class UnknownKeyError(RefusedKeyError):
    """A key that is not ours. Says nothing of what was presented."""

    kind = "invalid_api_key"

    def __init__(self) -> None:
        super().__init__("the key that was sent is not a key of this gateway")


class MissingKeyError(RefusedKeyError):
    """A request without a key. without_scheme: it had an Authorization header without `Bearer`."""

    kind = "invalid_api_key"

    def __init__(self, *, without_scheme: bool = False) -> None:
        why = " (its value has no `Bearer` before it)" if without_scheme else ""
        super().__init__(f"no key was sent{why}; send it as `Authorization: Bearer KEY`")


class BlockedKeyError(RefusedKeyError):
    """The key, or an organisation, team or user above it, is blocked: the one that level and name
    identify."""

    kind = "blocked_key"

    def __init__(self, level: str, name: str) -> None:
        super().__init__(f"{level} {shown(name)} is blocked; an administrator can unblock it")
        self.level = level
        self.name = name


class ExpiredKeyError(RefusedKeyError):
    """The key was good until expired_ms, in milliseconds since 1970."""

    kind = "expired_key"

    def __init__(self, key_id: str, expired_ms: int) -> None:
        super().__init__(
            f"key {shown(key_id)} has expired or was rotated; ask an administrator for the new one"
        )
        self.key_id = key_id
        self.expired_ms = expired_ms


class ModelNotAllowedError(AccountsError):
    """A level of the caller's path lists models, and this is none of them."""

    kind = "model_not_allowed"

    def __init__(self, key_id: str, model: str) -> None:
        super().__init__(
            f"model {shown(model)} is not among those that key {shown(key_id)} may use; "
            "GET /v1/models lists them"
        )
        self.key_id = key_id
        self.model = model


class UnknownPriceError(AccountsError):
    """A request whose cost is unknown: a budget takes no such request."""

    kind = "unknown_price"

    def __init__(self, level: str, name: str, model: str) -> None:
        super().__init__(
            f"the price of model {shown(model)}, or of the requested service tier, is unknown, "
            f"and a budget of {level} {shown(name)} refuses requests of unknown price; give its "
            "target a `price`, import prices (`headrace catalog import litellm FILE`), or set "
            "that budget's unknown_price to allow"
        )
        self.level = level
        self.name = name
        self.model = model


class LimitExceededError(AccountsError):
    """A limit would be exceeded; nothing was taken at any level.

    level and name identify the holder of the limit. limit_name: rpm, tpm, concurrency or budget;
    unit: of limit, used, reserved and wanted. retry_after_s: when it would pass if no other request
    came, None if that depends on running requests, or never happens. resets_at_ms: the same as a
    time since 1970.
    """

    kind = "limit_exceeded"

    def __init__(self, shortage: Shortage, *, at_ms: int) -> None:
        meter = shortage.meter
        self.level = meter.level
        self.name = meter.name
        self.limit_name = meter.limit_name
        self.unit = meter.unit
        self.model = meter.model
        self.window = meter.window
        self.limit = shortage.limit
        self.used = shortage.used
        self.reserved = shortage.held
        self.wanted = shortage.wanted
        self.resets_at_ms = shortage.free_at_ms
        self.retry_after_s: float | None = None
        if shortage.free_at_ms is not None:
            self.retry_after_s = max(0, shortage.free_at_ms - at_ms) / 1000
        super().__init__(self._text())

    @property
    def is_spent(self) -> bool:
        """Whether it is a budget that is used up or less than the request may cost, and not one
        that running requests hold alone."""
        return self.limit_name == "budget" and self.used + self.wanted > self.limit

    def _text(self) -> str:
        whose = f"{self.level} {shown(self.name)}"
        of_model = "" if self.model == "*" else f" for models {shown(self.model)}"
        limit = amount_text(self.limit, self.unit)
        if self.limit_name == "concurrency":
            return (
                f"{whose}: at most {limit} requests may run at once{of_model}, and "
                f"{self.reserved} are running; wait until one ends"
            )
        used = amount_text(self.used, self.unit)
        held = amount_text(self.reserved, self.unit)
        wanted = amount_text(self.wanted, self.unit)
        return (
            f"{whose}: {self.limit_name} of {limit}{of_model} {self.window.words}: {used} used, "
            f"{held} reserved by running requests, {wanted} wanted; {self._remedy()}"
        )

    def _remedy(self) -> str:
        if self.wanted > self.limit:
            return (
                "this one request needs more than the whole limit; request fewer tokens or ask "
                "for a higher limit"
            )
        if self.retry_after_s is None:
            if self.used + self.wanted <= self.limit:
                return "try again when running requests have ended"
            return "it does not reset by itself; ask an administrator to raise it"
        if self.retry_after_s <= _LONG_WAIT_S or self.resets_at_ms is None:
            return f"try again in {self.retry_after_s:.1f} s"
        at = datetime.fromtimestamp(-(-self.resets_at_ms // 1000), UTC)
        return f"try again at {at:%Y-%m-%d %H:%M:%S} UTC"


class StoresDownError(AccountsError):
    """The counters cannot be reached and the caller's policy is to refuse then."""

    kind = "stores_down"

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreError(AccountsError):
    """The file of accounts is missing, damaged, of another program or newer; or a change is not
    possible as asked."""

    kind = "store"


class StoreBusyError(StoreError):
    """A full queue: more changes wait to be written than the store queues."""

    kind = "store_busy"


def amount_text(amount: int, unit: str) -> str:
    """An amount as people read it: exact dollars, or a number with its unit."""
    if unit == "nusd":
        sign = "-" if amount < 0 else ""
        dollars, rest = divmod(abs(amount), NUSD_PER_USD)
        decimals = f"{rest:09d}".rstrip("0").ljust(2, "0")
        return f"{sign}${dollars}.{decimals}"
    return f"{amount} {unit}"
