"""The listening socket and its URL."""

from __future__ import annotations

import socket

from headrace.errors import ConfigError

BACKLOG = 2048
_WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def listen(host: str, port: int) -> socket.socket:
    """A bound, listening TCP socket; raises ConfigError naming host, port and remedy."""
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        return socket.create_server(
            (str(address[0]), port), family=family, backlog=BACKLOG, reuse_port=False
        )
    except OSError as error:
        raise ConfigError(
            f"--host {host} --port {port}: cannot listen there: {error.strerror or error}; "
            "choose another, or --port 0 for a free port"
        ) from error


def url_of(sock: socket.socket) -> str:
    """Where the socket is reached from this machine, without a path."""
    host, port = sock.getsockname()[:2]
    host = _WILDCARDS.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
