"""Whether a load was more than the service could serve: then its latencies measure its length.

Under such a load the queue grows for as long as requests come, so percentiles of waiting are those
of the chosen duration. It is judged by the run: in each quarter of the load more wait at the end
than at its beginning, and in its second half more requests come than end, by more than chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headrace.plan.simulation.finished import Finished

_PARTS = 4
# Of the requests that come in half of the load: below it a queue may be that of a busy service.
_LEAST_EXCESS = 0.05
# Of arrivals and completions that are both random.
_DEVIATIONS = 2.0


@dataclass(frozen=True, kw_only=True)
class Overload:
    """A load beyond what a service can serve."""

    arrived_per_s: float
    """Requests that came in the second half of the load."""
    served_per_s: float
    """The capacity for such requests: those that ended in that time."""
    load_s: float
    """Until the last request came."""
    waiting: int
    """Requests that waited when the last one came."""

    @property
    def needed(self) -> float:
        """How many times the capacity the load is."""
        return self.arrived_per_s / self.served_per_s if self.served_per_s else math.inf

    def text(self, replicas: int | None) -> str:
        """In a sentence or two. replicas: of a service of a fixed size that more would help."""
        served = f"{self.served_per_s:,.3g}"
        remedy = f"more replicas, --rate below {served} or a smaller --scale"
        if replicas is not None and self.served_per_s:
            needed = math.ceil(replicas * self.needed)
            remedy = f"about --replicas {needed:,}, --rate below {served} or a smaller --scale"
        return (
            f"overloaded: {self.arrived_per_s:,.3g} requests/s come and {served} can be served, so "
            f"the queue grows until the load ends ({self.waiting:,} wait then) and latencies only "
            f"show how long it lasts; what helps: {remedy}"
        )


def overload_of(finished: Finished) -> Overload | None:
    """The overload of a run, None if the service kept up or too little came to say."""
    arrived = np.sort(np.array(finished.arrived_s))
    if arrived.size < _PARTS:
        return None
    came = np.array(finished.arrived_s)
    admitted = np.sort(came + finished.times("queue"))
    ended = np.sort(came + finished.times("e2e"))
    load_s = float(arrived[-1])
    ends = [load_s * part / _PARTS for part in range(1, _PARTS + 1)]
    queue = [
        int(np.searchsorted(arrived, at, "right") - np.searchsorted(admitted, at, "right"))
        for at in ends
    ]
    if not all(later > earlier for earlier, later in zip([0, *queue], queue, strict=False)):
        return None
    half = load_s / 2
    recent = int(arrived.size - np.searchsorted(arrived, half, "right"))
    served = int(np.searchsorted(ended, load_s, "right") - np.searchsorted(ended, half, "right"))
    if recent - served <= _LEAST_EXCESS * recent + _DEVIATIONS * math.sqrt(recent):
        return None
    # Where answers are longer than the half, the whole run knows the capacity better.
    whole = arrived.size / float(ended[-1])
    return Overload(
        arrived_per_s=recent / half, served_per_s=max(served / half, whole),
        load_s=load_s, waiting=queue[-1],
    )  # fmt: skip
