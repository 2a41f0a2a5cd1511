"""How much of a connection, a reply and time a provider may have."""

from __future__ import annotations

from typing import NamedTuple


class Timeouts(NamedTuple):
    """In seconds; None: no limit.

    connect_s: to have a connection, TLS included. first_byte_s: from the request's last byte to the
    reply's head. idle_s: between two pieces of a reply; of a model's answer from its first content
    on (see `before_content`).
    """

    connect_s: float | None = 5.0
    first_byte_s: float | None = 600.0
    idle_s: float | None = 120.0

    def before_content(self) -> Timeouts:
        """The same without idle_s, for a reply whose first content may be thought about for long:
        who waits for it bounds that, and sets `Reply.limit_idle` then."""
        return Timeouts(self.connect_s, self.first_byte_s, None)


class PoolLimits(NamedTuple):
    """Of one origin.

    connections: at once; more requests wait for connect_s. rest_s: how long a connection may rest
    before it is closed; servers close theirs after 60 s and more, and a request that meets that is
    lost. held_bytes: of a reply's body that nobody took yet; beyond it reading stops until somebody
    does.
    """

    connections: int = 1024
    rest_s: float = 45.0
    head_bytes: int = 64 * 1024
    held_bytes: int = 256 * 1024
