"""Whose answers a caller may be given again."""

from __future__ import annotations

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.settings.cache import CacheScope


def tenant_of(caller: Caller | None, scope: CacheScope) -> tuple[str, ...]:
    """The same for callers who share answers.

    Who has no team or organisation shares with the next smaller group, at last with nobody but the
    own key. Where no keys are asked for, all callers are one.
    """
    if scope == "all":
        return ("all",)
    if caller is None:
        return ("nobody",)
    if scope == "organisation" and caller.organisation is not None:
        return ("organisation", caller.organisation)
    if scope in ("organisation", "team") and caller.team is not None:
        return ("team", caller.organisation or "", caller.team)
    return ("key", caller.key_id)
