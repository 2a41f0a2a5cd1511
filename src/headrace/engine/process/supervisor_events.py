"""How an engine is watched, and what is told of what happens to it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from headrace.engine.process.client import EngineClient

Reason = Literal["died", "stalled", "failed_to_load", "requested"]
Launch = Callable[..., Awaitable[EngineClient]]
"""EngineClient.start, or what stands for it."""


class EngineFell(NamedTuple):
    """An engine serves no more, or an attempt to start one failed."""

    reason: Reason
    failure: str


class EngineRestarting(NamedTuple):
    """Attempt `attempt` of at most `limit` in a row begins after `wait_s`; why is `reason`.

    One that was asked for is no attempt of those: its number is 0.
    """

    reason: Reason
    attempt: int
    limit: int
    wait_s: float


class EngineRecovered(NamedTuple):
    """An engine serves again, `after_s` after the one before it fell."""

    after_s: float


class EngineGivenUp(NamedTuple):
    """An engine that is given up: no further attempt will be made."""

    failure: str


Event = EngineFell | EngineRestarting | EngineRecovered | EngineGivenUp


class Supervision(NamedTuple):
    """The settings of supervision, and the clock, random source and launcher it uses."""

    max_restarts: int = 5
    """In a row."""
    stall_timeout_s: float = 120.0
    """How long it may say nothing, serving or loading."""
    on_event: Callable[[Event], None] | None = None
    """Called from the event loop with what happens to it."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    rng: random.Random | None = None
    """Spreads the waits."""
    launch: Launch = EngineClient.start
