"""Which replica a request goes to."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from typing import Protocol

from headrace.plan.simulation.arrival import Arrival
from headrace.plan.simulation.replica import Replica
from headrace.plan.simulation.settings import Routing


class Router(Protocol):
    """A policy. Replicas are ready ones, at least one, in the order of their numbers."""

    def choose(self, replicas: Sequence[Replica], arrival: Arrival) -> Replica: ...


class RoundRobin:
    """A router that picks each replica in turn, whatever it has to do."""

    def __init__(self) -> None:
        self._turn = count()

    def choose(self, replicas: Sequence[Replica], arrival: Arrival) -> Replica:
        """The next one; those that came or went shift the turn."""
        return replicas[next(self._turn) % len(replicas)]


class LeastLoaded:
    """The one with the fewest requests, waiting and running; of equals the one longest not chosen.

    Always taking the first of equals would send a burst that finds all idle to one of them.
    """

    def __init__(self) -> None:
        self._turns = count(1)
        self._chosen: dict[int, int] = {}

    def choose(self, replicas: Sequence[Replica], arrival: Arrival) -> Replica:
        """Looks at all of them, as a balancer that counts its open requests does."""
        counts = [one.num_calls for one in replicas]
        fewest = min(counts)
        chosen = self._chosen
        found, longest_ago = replicas[0], math.inf
        for one, calls in zip(replicas, counts, strict=True):
            if calls == fewest and (turn := chosen.get(one.number, 0)) < longest_ago:
                found, longest_ago = one, turn
                if not turn:
                    break
        chosen[found.number] = next(self._turns)
        return found


class PrefixAware:
    """The one that has most of the prompt cached, unless it is much busier than the least loaded.

    It goes by what it has sent to each, the `most_tokens` last seen, as balancers do that are not
    told of evictions. Where nobody has any of it the least loaded is taken. imbalance: how many
    requests more than the least loaded are too many, beside half as many again.
    """

    def __init__(self, most_tokens: int, imbalance: int = 8) -> None:
        self._most_tokens = most_tokens
        self._imbalance = imbalance
        self._sent: dict[int, OrderedDict[int, None]] = {}
        self._least = LeastLoaded()

    def choose(self, replicas: Sequence[Replica], arrival: Arrival) -> Replica:
        """Remembers what the chosen one then has."""
        found = self._least.choose(replicas, arrival)
        if not arrival.shared:
            return found
        allowed = max(found.num_calls + self._imbalance, found.num_calls * 3 // 2)
        best = 0
        for one in replicas:
            matched = self._matched(one, arrival)
            if matched > best and one.num_calls <= allowed:
                found, best = one, matched
        sent = self._sent.setdefault(found.number, OrderedDict())
        for block in arrival.shared:
            sent[block] = None
            sent.move_to_end(block)
        while len(sent) * arrival.shared_tokens > self._most_tokens:
            sent.popitem(last=False)
        return found

    def _matched(self, replica: Replica, arrival: Arrival) -> int:
        sent = self._sent.get(replica.number)
        if not sent:
            return 0
        matched = 0
        for block in arrival.shared:
            if block not in sent:
                break
            matched += 1
        return matched


def router_of(routing: Routing, cache_tokens: int) -> Router:
    """cache_tokens: that a replica's KV cache holds."""
    if routing == "round-robin":
        return RoundRobin()
    return LeastLoaded() if routing == "least-loaded" else PrefixAware(cache_tokens)
