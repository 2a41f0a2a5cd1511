"""Callers with and without keys, and their limits."""

from __future__ import annotations

from headrace.errors import ConfigError
from headrace.gateway.access import Access
from headrace.gateway.accounts.accounts import Accounts
from headrace.gateway.accounts.stored_ids import StoredIds
from headrace.gateway.accounts.terms import Limits
from headrace.gateway.client_address import ClientAddresses
from headrace.gateway.guests import Guests
from headrace.gateway.serving.free_tier import FreeTier
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.secret import MIN_KEY_CHARS, Sources, read_secret
from headrace.http.host_names import is_loopback


def access_of(
    settings: GatewaySettings, accounts: Accounts | None, sources: Sources, own_key: str | None
) -> Access:
    """Raises ConfigError for a master key or a key for metrics that is not there, and for a master
    key that other machines may guess."""
    own = settings.access
    guests = None
    if not own.require_key and own.anonymous is not None:
        limits = own.anonymous.limits
        guests = Guests(
            tuple(
                Limits(
                    rpm=limit.rpm, tpm=limit.tpm, concurrency=limit.concurrency, model=limit.models
                )
                for limit in limits
            )
        )
    master = None
    if own.master_key is not None:
        master = read_secret(own.master_key, sources, "access.master_key")
        length = len(master.reveal())
        if length < MIN_KEY_CHARS and not is_loopback(settings.listen.host):
            raise ConfigError(
                f"access.master_key is too short ({length} of {MIN_KEY_CHARS} characters): other "
                f"machines reach listen.host {settings.listen.host} and may guess it; `openssl "
                "rand -hex 24` makes one, or write `host: 127.0.0.1`"
            )
    metrics = None
    if own.metrics_key is not None:
        metrics = read_secret(own.metrics_key, sources, "access.metrics_key")
    return Access(
        accounts if own.require_key else None,
        master,
        own_key,
        guests,
        metrics,
    )


def counted_in(settings: GatewaySettings, accounts: Accounts | None) -> Accounts | None:
    """The accounts that count requests; None if nothing has limits."""
    own = settings.access
    return accounts if own.require_key or own.anonymous is not None else None


def stored_ids_of(settings: GatewaySettings, accounts: Accounts | None) -> StoredIds | None:
    """The check of stored ids; None if a request may name any id."""
    own = settings.access
    if accounts is None or not own.require_key or own.stored_ids == "any":
        return None
    return accounts.stored_ids


def free_tier_of(settings: GatewaySettings, accounts: Accounts | None) -> FreeTier | None:
    """The limits of models that cost nothing; None if there are no such limits."""
    if settings.free_tier is None or accounts is None:
        return None
    return FreeTier(settings.free_tier, accounts)


def addresses_of(settings: GatewaySettings) -> ClientAddresses | None:
    """The reader of client addresses; None if addresses do not matter. Raises ConfigError for a
    proxy that is not an address or network."""
    found = ClientAddresses(settings.listen.trusted_proxies)
    anonymous = not settings.access.require_key and settings.access.anonymous is not None
    return found if anonymous or settings.free_tier is not None else None
