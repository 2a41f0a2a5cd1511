"""--host and --port: where the server listens, and what is said where it cannot."""

from __future__ import annotations

import socket

import pytest

from headrace.config import ServerConfig
from headrace.errors import ConfigError
from headrace.http.listen import Listener, listen


def test_host_and_port() -> None:
    with Listener(ServerConfig(host="127.0.0.2", port=0)) as first:
        port = first.socket.getsockname()[1]
        assert first.url == f"http://127.0.0.2:{port}"
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.3", port), timeout=5)
        socket.create_connection(("127.0.0.2", port), timeout=5).close()
        with Listener(ServerConfig(host="127.0.0.3", port=port)) as second:
            assert second.url == f"http://127.0.0.3:{port}"
        with pytest.raises(ConfigError, match=f"--host 127.0.0.2 --port {port}: .*--port 0"):
            Listener(ServerConfig(host="127.0.0.2", port=port))
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", port), timeout=5)


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match=r"--host no-such-host\.invalid .*cannot listen there"):
        listen("no-such-host.invalid", 0)


def test_errors_call_an_address_as_its_settings_do() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            listen("127.0.0.1", port, names=("admin.host", "admin.port"))
    said = str(caught.value)
    assert said.startswith(f"admin.host 127.0.0.1 admin.port {port}: cannot listen there")
    assert "--port" not in said and "admin.port 0 for a free one" in said


def test_the_remedy_is_that_of_the_cause() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match="another program listens there; choose another port"):
            listen("127.0.0.1", port)
    # An address that is kept for documentation (RFC 5737), so that no machine has it.
    with pytest.raises(ConfigError, match="no interface of this machine has that address"):
        listen("203.0.113.7", 0)
