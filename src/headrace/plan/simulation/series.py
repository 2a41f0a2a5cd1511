"""The state of the service at equal distances of time."""

from __future__ import annotations

from typing import NamedTuple

from headrace.plan.simulation.pool import Pool


class Point(NamedTuple):
    """The state of all replicas together at one time."""

    at_s: float
    replicas_ready: int
    replicas_paid: int
    waiting: int
    running: int
    batch: float
    """Requests running on a ready replica, mean."""
    kv_share: float
    """Mean share of blocks in use, of ready replicas."""
    busy_share: float
    """Share of replica-seconds since the previous point."""
    preemptions: int
    completed: int
    """With `preemptions`: since the start."""


class Sampler:
    """A sampler of a service's points."""

    def __init__(self, pools: list[Pool]) -> None:
        self.points: list[Point] = []
        self._pools = pools
        self._busy_s = 0.0
        self._last_s = 0.0

    def take(self, now_s: float, completed: int) -> None:
        """Look at all replicas."""
        ready = [one for pool in self._pools for one in pool.ready]
        paid = [one for pool in self._pools for one in pool.paid_for]
        shares = [one.kv_share(now_s) for one in ready]
        everyone = [one for pool in self._pools for one in pool.replicas]
        busy_s = sum(one.busy_s for one in everyone)
        running = sum(one.num_running for one in paid)
        span_s = (now_s - self._last_s) * len(paid)
        self.points.append(
            Point(
                at_s=now_s,
                replicas_ready=len(ready),
                replicas_paid=len(paid),
                waiting=sum(pool.num_waiting for pool in self._pools),
                running=running,
                batch=running / len(ready) if ready else 0.0,
                kv_share=sum(shares) / len(shares) if shares else 0.0,
                busy_share=min(1.0, (busy_s - self._busy_s) / span_s) if span_s > 0 else 0.0,
                preemptions=sum(one.all_preemptions for one in everyone),
                completed=completed,
            )
        )
        self._busy_s, self._last_s = busy_s, now_s
