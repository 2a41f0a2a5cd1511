"""The group of callers that share what is cached."""

from __future__ import annotations

from headrace.gateway.accounts.caller import Caller
from headrace.gateway.settings.cache import CacheScope


def tenant_of(caller: Caller | None, scope: CacheScope) -> tuple[str, ...]:
    """The group of a caller; equal for callers that share.

    A key without a team or organisation shares within the next smaller group, at last only with
    itself. If keys are not required, all callers are one group.
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
