"""Names in `Host`: a page that makes its own name point to this machine is refused."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headrace.config import ServerConfig
from headrace.errors import ConfigError
from headrace.http.host_names import HostNames, is_loopback
from headrace.http.listen import Listener, listen, listen_unix

SETTING = "--allowed-hosts"
NAMES = HostNames.of(("LLM.example.com", "*.corp.example", "box."), SETTING)


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "localhost:8000", "LocalHost", "localhost.", "127.0.0.1", "127.8.8.8:1",
        "192.168.1.5:8000", "[::1]", "[::1]:8000", "[fe80::1%eth0]:80",
        "llm.example.com", "llm.EXAMPLE.com:443", "llm.example.com.", "box", "box:1",
        "a.corp.example", "a.b.corp.example:8000",
    ],
)  # fmt: skip
def test_names_that_are_taken(host: str) -> None:
    assert NAMES.refusal(host) is None


@pytest.mark.parametrize(
    "host",
    [
        "", ":8000", "evil.example", "evil.example:8000", "localhost.evil.example",
        "127.0.0.1.evil.example", "evil.example#localhost", "evil@localhost", "localhost/x",
        "corp.example", "evilcorp.example", "x.llm.example.com", "[evil.example]", "[localhost]x",
        "[::1", "[::1]x", "::1", "127.1", "2130706433", "0x7f.1", "localhost..", "*",
        "*.corp.example.evil.example", "\xe9vil",
    ],
)  # fmt: skip
def test_names_that_are_refused(host: str) -> None:
    refusal = NAMES.refusal(host)
    assert refusal is not None
    assert refusal.startswith(f"Host: {host!r} is not a name of this server")
    assert refusal.endswith(f"add the name to {SETTING}")


def test_a_long_name_does_not_come_back_long() -> None:
    assert len(NAMES.refusal("x" * 8000) or "") < 400


def test_a_star_takes_every_name() -> None:
    assert HostNames.of(("*",), SETTING).refusal("evil.example") is None


def refused(hosts: HostNames | None, *names: str) -> list[str]:
    """Those of the names that a listener refuses."""
    return [] if hosts is None else [name for name in names if hosts.refusal(name)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["llm.example", "evil.example"]),
        ({"host": "localhost"}, ["llm.example", "evil.example"]),
        ({"host": "127.0.0.2"}, ["llm.example", "evil.example"]),
        ({"allowed_hosts": ("llm.example",)}, ["evil.example"]),
        ({"allowed_hosts": ("*.example",)}, []),
        ({"allowed_hosts": ("*",)}, []),
        ({"host": "0.0.0.0"}, []),
        ({"host": "0.0.0.0", "allowed_hosts": ("llm.example",)}, ["evil.example"]),
    ],
)
def test_names_of_a_listener(settings: dict[str, object], expected: list[str]) -> None:
    with Listener(ServerConfig(port=0, **settings)) as listener:  # type: ignore[arg-type]
        names = ("localhost", "127.0.0.1:1", "llm.example", "evil.example")
        assert refused(listener.hosts, *names) == expected


def test_the_name_it_was_to_listen_on_is_its_own() -> None:
    with listen("127.0.0.1", 0) as sock:
        hosts = HostNames.of_listener(sock, "my-machine", (), SETTING)
    assert refused(hosts, "my-machine:8000", "evil.example") == ["evil.example"]


def test_loopback_of_version_6() -> None:
    try:
        sock = listen("::1", 0)
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    with sock:
        assert refused(HostNames.of_listener(sock, "::1", (), SETTING), "[::1]", "evil") == ["evil"]


def test_a_unix_socket_takes_every_name(tmp_path: Path) -> None:
    with listen_unix(tmp_path / "s") as sock:
        assert sock.family == socket.AF_UNIX
        assert HostNames.of_listener(sock, "127.0.0.1", ("llm.example",), SETTING) is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True),
        ("::ffff:127.0.0.1", True), ("0.0.0.0", False), ("::", False), ("192.168.0.1", False),
        ("", False), ("some.name", False),
    ],
)  # fmt: skip
def test_which_hosts_are_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
