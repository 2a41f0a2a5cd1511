"""The separation of tenants in the prompt cache of a provider.

An engine that has a prompt's beginning answers faster, and reports how much of it it had: whoever
guesses another tenant's prompt would learn that it was sent. Where requests of two tenants carry
different salts they share nothing. A client's own salt separates further, within its tenant.
"""

from __future__ import annotations

import hashlib

import msgspec

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.accounts.tenant import tenant_of
from headrace.gateway.settings.cache import CacheScope
from headrace.gateway.targets.provider import Provider
from headrace.protocol.json_object import JsonObject

# 160 bits. In hexadecimal 40 characters, of the 64 that OpenAI accepts.
_BYTES = 20


def tenant_salt(caller: Caller | None, scope: CacheScope, own: bytes = b"") -> str | None:
    """A salt that no other tenant has; None if all share. `own` is the client's own, as JSON.

    It depends on names alone, so that every process and the next start have the same.
    """
    if caller is None or scope == "all":
        return None
    told = msgspec.json.encode(("prompt cache", tenant_of(caller, scope), own))
    return hashlib.blake2b(told, digest_size=_BYTES).hexdigest()


def salt_edits(
    provider: Provider, caller: Caller | None, body: JsonObject
) -> dict[str, bytes | None]:
    """The edits of a body that keep the caller's tenant apart at this provider."""
    name = provider.prompt_cache_field
    if name is None:
        return {}
    salt = tenant_salt(caller, provider.prompt_cache_scope, body.value(name) or b"")
    return {} if salt is None else {name: msgspec.json.encode(salt)}
