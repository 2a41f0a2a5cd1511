"""What all requests of a gateway share."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.gateway.settings.reliability import Unsupported
from headrace.gateway.telemetry.tracing import NOT_TRACED, Tracing
from headrace.http.large_bodies import LargeBodies

if TYPE_CHECKING:  # what the configuration does not use is not imported
    from headrace.gateway.accounts.accounts import Accounts
    from headrace.gateway.accounts.stored_ids import StoredIds
    from headrace.gateway.cache.cache import ResponseCache
    from headrace.gateway.guards.guardrails import Guardrails
    from headrace.gateway.request_log.visit import RequestLogging
    from headrace.gateway.routing.router import Router
    from headrace.gateway.serving.composed.ways import Ways
    from headrace.gateway.serving.entry import Entry
    from headrace.gateway.serving.error_detail import ErrorDetail
    from headrace.gateway.serving.free_tier import FreeTier
    from headrace.gateway.serving.shadowing import Shadows


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """The parts of a gateway that all requests share. Optional parts are None if not configured."""

    router: Router
    accounts: Accounts | None
    """None if nothing is counted."""
    unsupported: Unsupported
    most_reply_bytes: int
    error_detail: ErrorDetail | None
    """How much clients read of failures that are not theirs; None for the default by caller."""
    clock_ns: Callable[[], int]
    """A monotonic clock."""
    wall_s: Callable[[], float]
    """Unix time."""
    source: random.Random
    on_entry: Callable[[Entry], None]
    """Takes each ledger line; must not wait."""
    large_bodies: LargeBodies
    """Where large bodies are read and translated."""
    cache: ResponseCache | None = None
    guardrails: Guardrails | None = None
    tracing: Tracing = NOT_TRACED
    request_log: RequestLogging | None = None
    shadows: Shadows | None = None
    ways: Ways | None = None
    free_tier: FreeTier | None = None
    stored_ids: StoredIds | None = None
