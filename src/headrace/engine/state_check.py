"""Whether requests and blocks add up: what holds after each step, and what holds without work."""

from __future__ import annotations

import logging
from collections.abc import Collection
from operator import attrgetter

from headrace.engine.kv.kv_cache import KVCache
from headrace.engine.request import Request, State
from headrace.engine.scheduling.scheduler import Scheduler

logger = logging.getLogger(__name__)


def check_states(
    scheduler: Scheduler, compiling: Collection[Request], requests: Collection[Request]
) -> None:
    """AssertionError where a request is not in the one place that its state says.

    compiling: those whose grammar is not ready. requests: all of them.
    """
    running, waiting = scheduler.running, scheduler.waiting
    assert all(request.state is State.RUNNING for request in running)
    assert running == sorted(running, key=attrgetter("rank")), "running is out of order"
    assert len(waiting) == len(set(waiting))
    assert all(request.state is State.WAITING and not request.tables for request in waiting)
    assert all(request.state is State.COMPILING for request in compiling)
    assert {*running, *waiting, *compiling} == set(requests)
    assert len({request.slot for request in running}) == len(running)


def is_idle(kv: KVCache) -> bool:
    """Whether every block is free or cached, as it is with nothing left to do; logged if not."""
    if kv.num_owned == 0 and kv.num_free + kv.num_cached == kv.num_blocks:
        return True
    logger.error(
        "KV block counts are inconsistent while idle: %d free, %d cached, %d owned of %d",
        kv.num_free,
        kv.num_cached,
        kv.num_owned,
        kv.num_blocks,
    )
    return False
