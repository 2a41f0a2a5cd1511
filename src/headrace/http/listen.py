"""Where the server listens: a TCP address or a Unix socket, and the URL of it."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from headrace.config.server_settings import ServerConfig
from headrace.errors import ConfigError
from headrace.http.host_names import HostNames

BACKLOG = 2048
# Whoever may connect may use the server: only its own user, unless that changes the mode.
SOCKET_MODE = 0o600
_WILDCARDS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


class Listener:
    """A listening socket of the settings, until the end of a `with`.

    `url` has no path. `hosts` are the names that requests may be addressed to, None for any.
    """

    def __init__(self, config: ServerConfig) -> None:
        """Raises ConfigError naming flag, address and remedy."""
        if config.uds is None:
            self.socket = listen(config.host, config.port)
            self.url = url_of(self.socket, tls=config.ssl_certfile is not None)
            self._path = None
        else:
            self._path = Path(config.uds).absolute()
            self.socket = listen_unix(self._path)
            self.url = f"unix:{self._path}"
            self._inode = self._path.stat().st_ino
        self.hosts = HostNames.of_listener(
            self.socket, config.host, config.allowed_hosts, "--allowed-hosts"
        )

    def __enter__(self) -> Listener:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close it and remove its path, unless another server has put its own there by now."""
        self.socket.close()
        if self._path is not None:
            with suppress(OSError):  # somebody else removed it, or the folder
                if self._path.stat().st_ino == self._inode:
                    self._path.unlink()
            self._path = None


def listen(
    host: str, port: int, *, shares: bool = False, names: tuple[str, str] = ("--host", "--port")
) -> socket.socket:
    """A bound, listening TCP socket; raises ConfigError naming host, port and remedy.

    shares: whether others of this user may listen there too; the system divides connections.
    names: what errors call host and port.
    """
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        sock = socket.create_server(
            (str(address[0]), port), family=family, backlog=BACKLOG, reuse_port=shares
        )
        # Connections inherit it. uvloop sets it by itself; asyncio's own loop does not for sockets
        # made elsewhere, and each reply on a kept connection then takes 40 ms longer.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    except OSError as error:
        remedies = {
            errno.EADDRINUSE: f"another program listens there; choose another port, or {names[1]} "
            "0 for a free one",
            errno.EADDRNOTAVAIL: "no interface of this machine has that address; 127.0.0.1 is for "
            "this machine alone, 0.0.0.0 for all its addresses",
            errno.EACCES: "this user may not listen there; choose a port from 1024 on",
        }
        problem = remedies.get(error.errno or 0, f"{error.strerror or error}; choose another")
        raise ConfigError(
            f"{names[0]} {host} {names[1]} {port}: cannot listen there: {problem}"
        ) from error


def listen_unix(path: Path) -> socket.socket:
    """A listening Unix socket at `path`, for this user only.

    A socket nobody listens on, left by a server that was killed, is replaced; anything else there
    raises ConfigError and stays.
    """
    _make_room(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mode has to be right from the first moment: between bind and chmod anybody could connect.
    before = os.umask(0o777 & ~SOCKET_MODE)
    try:
        sock.bind(str(path))
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"--uds {path}: cannot listen there: {error.strerror or error}; choose a path of at "
            "most 107 bytes in a folder you may write to"
        ) from error
    finally:
        os.umask(before)
    return sock


def _make_room(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except OSError:  # nothing is there, or binding will say what is wrong
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"--uds {path}: the path exists and is not a socket; choose another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            with suppress(FileNotFoundError):  # another server was quicker
                path.unlink()
            return
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"--uds {path}: a socket exists there, and whether a process listens on it is "
                f"unknown: {reason}; remove it, or choose another path"
            ) from error
    raise ConfigError(
        f"--uds {path}: another process listens there; end it, or choose another path"
    )


def url_of(sock: socket.socket, *, tls: bool = False) -> str:
    """Where the TCP socket is reached from this machine, without a path."""
    scheme = "https" if tls else "http"
    host, port = sock.getsockname()[:2]
    host = _WILDCARDS.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
