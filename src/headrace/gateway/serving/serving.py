"""What all requests of a gateway share."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.gateway.telemetry.tracing import NOT_TRACED, Tracing

if TYPE_CHECKING:  # what a file does not use is not imported for it
    from headrace.gateway.accounts.accounts import Accounts
    from headrace.gateway.accounts.stored_ids import StoredIds
    from headrace.gateway.cache.cache import ResponseCache
    from headrace.gateway.guards.guardrails import Guardrails
    from headrace.gateway.request_log.visit import RequestLogging
    from headrace.gateway.routing.router import Router
    from headrace.gateway.serving.composed.ways import Ways
    from headrace.gateway.serving.entry import Entry
    from headrace.gateway.serving.free_tier import FreeTier
    from headrace.gateway.serving.shadowing import Shadows


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """What all requests share. accounts: None where nobody is counted. wall_s: Unix time; clock_ns:
    monotonic. on_entry takes each line of the ledger and must not wait. What follows it: None
    where the file does not use it."""

    router: Router
    accounts: Accounts | None
    drop_unsupported: bool
    most_reply_bytes: int
    clock_ns: Callable[[], int]
    wall_s: Callable[[], float]
    source: random.Random
    on_entry: Callable[[Entry], None]
    cache: ResponseCache | None = None
    guardrails: Guardrails | None = None
    tracing: Tracing = NOT_TRACED
    request_log: RequestLogging | None = None
    shadows: Shadows | None = None
    ways: Ways | None = None
    free_tier: FreeTier | None = None
    stored_ids: StoredIds | None = None
