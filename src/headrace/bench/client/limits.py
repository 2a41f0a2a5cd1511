"""How much time, memory and how many connections a load run may take."""

from __future__ import annotations

import msgspec

from headrace.errors import ConfigError

MEBIBYTE = 2**20


class ClientLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one client. Raises ConfigError for a value out of range."""

    max_connections: int = 4096
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 600.0
    """Time allowed from the start of a request to the end of its reply."""
    max_reply_bytes: int = 64 * MEBIBYTE
    """Memory of one reply; an endless stream ends there."""
    max_held_bytes: int = 1024 * MEBIBYTE
    """Memory of all that are under way; one that needs more when nothing is left ends."""
    keepalive_s: float = 4.0
    """A connection that rested longer is not used again; less than the 5 s after which many servers
    close theirs, so that no request meets the closing."""

    def __post_init__(self) -> None:
        """Check every field."""
        for field, least, most in (
            ("max_connections", 1, 1_000_000),
            ("connect_timeout_s", 0.001, 3600),
            ("request_timeout_s", 0.001, 86_400),
            ("max_reply_bytes", 1, 2**40),
            ("max_held_bytes", 1, 2**40),
            ("keepalive_s", 0, 86_400),
        ):
            value = getattr(self, field)
            if not least <= value <= most:
                raise ConfigError(f"{field}: {value:g} is not in {least:g} to {most:g}")
