"""Replicas that do the same work, with those that come and go."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from headrace.plan.simulation.call import Call
from headrace.plan.simulation.events import EventQueue
from headrace.plan.simulation.replica import Phase, Replica
from headrace.plan.simulation.routing import Router
from headrace.plan.simulation.settings import EngineSettings, Role

Send = Callable[[Replica, Call, float], None]


class Pool:
    """A pool that sends calls to its ready replicas; keeps them in a queue of its own while there
    is none.

    send: puts a call on a replica. on_end: called with each call that ends here.
    """

    def __init__(
        self,
        role: Role,
        replicas: int,
        engine: EngineSettings,
        events: EventQueue,
        router: Router,
        send: Send,
        on_end: Callable[[Replica, Call, float], None],
    ) -> None:
        self.role = role
        self.replicas: list[Replica] = []
        """All that ever were, by number."""
        self.backlog: deque[Call] = deque()
        self._engine = engine
        self._events = events
        self._router = router
        self._send = send
        self._on_end = on_end
        self._ready: list[Replica] = []
        for _ in range(replicas):
            self._new()
        self._note_ready()

    @property
    def ready(self) -> list[Replica]:
        return self._ready

    @property
    def starting(self) -> int:
        return sum(one.phase is Phase.STARTING for one in self.replicas)

    @property
    def paid_for(self) -> list[Replica]:
        """Those that are there in any state, broken ones among them."""
        return [one for one in self.replicas if one.phase is not Phase.GONE]

    @property
    def num_waiting(self) -> int:
        """Calls that are in no batch."""
        return len(self.backlog) + sum(one.num_waiting for one in self.paid_for)

    def take(self, call: Call, now_s: float) -> None:
        """Send a call to a replica, or keep it until one is ready."""
        if not self._ready:
            self.backlog.append(call)
            return
        self._send(self._router.choose(self._ready, call.arrival), call, now_s)

    def add(self, count: int, cold_start_s: Callable[[], float]) -> None:
        """Begin to start so many more."""
        for _ in range(count):
            replica = self._new()
            replica.phase = Phase.STARTING
            self._ready_after(replica, cold_start_s())

    def drain(self, count: int, now_s: float) -> None:
        """Let so many go: those that start first, then the least busy, which end what they have."""
        for replica in sorted(
            (one for one in self.replicas if one.phase in (Phase.STARTING, Phase.READY)),
            key=lambda one: (one.phase is Phase.READY, one.num_calls, -one.number),
        )[:count]:
            replica.phase = Phase.DRAINING
            self._note_ready()
            self.let_go(replica, now_s)

    def let_go(self, replica: Replica, now_s: float) -> None:
        """Stop paying for a draining one that has nothing left to do."""
        if replica.phase is Phase.DRAINING and not replica.num_calls:
            replica.phase = Phase.GONE
            replica.gone_s = now_s
            replica.finish()

    def fail(self, replica: Replica, back_after_s: float, now_s: float) -> list[Call]:
        """Break a replica; the calls it had. It is back, with an empty cache, after so long."""
        was = replica.phase
        if was not in (Phase.READY, Phase.DRAINING):
            return []
        lost = replica.fail()
        replica.phase = was if was is Phase.DRAINING else Phase.DOWN
        self._note_ready()
        self.let_go(replica, now_s)
        if replica.phase is Phase.DOWN:
            self._ready_after(replica, back_after_s)
        return lost

    def _new(self) -> Replica:
        replica = Replica(len(self.replicas), self._engine, self._events, self._on_end)
        self.replicas.append(replica)
        return replica

    def _ready_after(self, replica: Replica, seconds: float) -> None:
        def ready(now_s: float) -> None:
            if replica.phase in (Phase.STARTING, Phase.DOWN):
                replica.phase = Phase.READY
                self._note_ready()
                waiting, self.backlog = self.backlog, deque()
                for call in waiting:
                    self.take(call, now_s)

        self._events.at(self._events.now_s + seconds, ready)

    def _note_ready(self) -> None:
        self._ready = [one for one in self.replicas if one.phase is Phase.READY]


def drawn_cold_start(span_s: tuple[float, float], source: random.Random) -> Callable[[], float]:
    """Draws of a time between the ends, each as likely."""
    return lambda: source.uniform(*span_s)
