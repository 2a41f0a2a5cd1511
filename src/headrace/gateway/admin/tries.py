"""Refusal of wrong keys from an address for a while after too many of them.

It keeps logs and callers from a flood; that a key cannot be guessed is up to its length.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from collections.abc import Callable

# A person mistypes a key twice.
_MOST_TRIES = 10
_WITHIN_S = 60.0
# Of an attacker with many addresses the oldest are forgotten, not memory filled.
_MOST_ADDRESSES = 4096
# An IPv6 customer has as many addresses as it likes, in one network of this length.
_V6_PREFIX = 64


class Tries:
    """Failed attempts by address. clock_s: seconds of a monotonic clock."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """How long requests without the right key are refused there; 0 if they are not."""
        failed = self._recent(_network(address))
        if failed is None or len(failed) < _MOST_TRIES:
            return 0.0
        return max(0.0, failed[-_MOST_TRIES] + _WITHIN_S - self._clock_s())

    def failed(self, address: str) -> None:
        """A wrong key came from there."""
        network = _network(address)
        if self._recent(network) is None:
            self._failed[network] = deque(maxlen=_MOST_TRIES)
        self._failed[network].append(self._clock_s())
        self._failed.move_to_end(network)
        while len(self._failed) > _MOST_ADDRESSES:
            self._failed.popitem(last=False)

    def _recent(self, network: str) -> deque[float] | None:
        failed = self._failed.get(network)
        while failed and failed[0] <= self._clock_s() - _WITHIN_S:
            failed.popleft()
        return failed


def _network(address: str) -> str:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((found, _V6_PREFIX), strict=False))
