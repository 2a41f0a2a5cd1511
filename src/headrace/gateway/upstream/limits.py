"""Limits on the connections, replies and time of a provider."""

from __future__ import annotations

from typing import NamedTuple


class Timeouts(NamedTuple):
    """Timeouts in seconds; None for no limit."""

    connect_s: float | None = 5.0
    """To get a connection, TLS included."""
    first_byte_s: float | None = 600.0
    """From the request's last byte to the reply's head."""
    idle_s: float | None = 120.0
    """Between two pieces of a reply; for a model's answer, from its first content on (see
    `before_content`)."""

    def before_content(self) -> Timeouts:
        """The same without idle_s, for a reply whose model may think for long before its first
        content: the caller limits that wait, and then calls `Reply.limit_idle`."""
        return Timeouts(self.connect_s, self.first_byte_s, None)


class PoolLimits(NamedTuple):
    """Limits on the connections to one origin."""

    connections: int = 1024
    """At once; further requests wait for connect_s."""
    rest_s: float = 45.0
    """How long a connection may be idle; servers close theirs after 60 s or more, and a request
    that meets that is lost."""
    head_bytes: int = 64 * 1024
    held_bytes: int = 256 * 1024
    """Unread bytes of a reply's body beyond which reading stops."""
