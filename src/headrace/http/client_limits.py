"""What one client may take of the server before anybody looks at what it says.

The settings' part is in ServerConfig; the constants are bounds no honest client comes near, so they
are no settings. Bytes are counted as they arrive, so a limit also bounds memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.config.server_settings import ServerConfig

# The longest path there is has 30 characters; nginx and Apache take 8 KiB as well.
MAX_URL_BYTES = 8 * 2**10
# Browsers send about 20 headers, a chain of proxies adds as many.
MAX_HEADERS = 100
# Requests of one connection that wait behind the one in work; the rest is left unparsed.
MAX_PIPELINED = 32
# What one connection may send ahead of the replies before it is read no further. Reading on is how
# a disconnect is noticed, so it has to be more than a few pipelined requests.
AHEAD_BYTES = 256 * 2**10
# The parser is fed in such pieces, so that what is counted after each is exact to one piece.
PIECE_BYTES = 4096
# After a last reply, what a client still sends is read for so long: a socket closed with unread
# bytes resets the connection, and the client may lose the reply.
LINGER_S = 2.0
# Connections that are being told there is no room, and no more than there is room for; the others
# are cut without a word. They are open files too, see file_limit.
MAX_TURNED_AWAY = 128
# Told to clients that find no connection free.
RETRY_AFTER_S = 1


@dataclass(frozen=True)
class ClientLimits:
    """Bounds of one connection and of their number; see the settings of the same names."""

    max_header_bytes: int = 32 * 2**10
    max_discarded_bytes: int = 32 * 2**20
    """What is read and thrown away of a request that was refused before it was whole: twice the
    largest body, as clients commonly send all of one that is too large before they read."""
    max_connections: int = 4096
    slow_client_s: float = 60.0

    @classmethod
    def of(cls, config: ServerConfig) -> ClientLimits:
        """Those of the settings."""
        return cls(
            max_header_bytes=config.max_header_bytes,
            max_discarded_bytes=2 * config.max_body_bytes,
            max_connections=config.max_connections,
            slow_client_s=config.slow_client_timeout,
        )
