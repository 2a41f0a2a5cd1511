"""Who is believed about where a request comes from."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigError
from headrace.gateway.client_address import ClientAddresses

PROXIES = ("10.0.0.0/8", "2001:db8:ffff::1")


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "counted_as"),
    [
        ("203.0.113.7", "", "203.0.113.7"),
        ("203.0.113.7", "198.51.100.1", "203.0.113.7"),  # nobody we trust says so
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "1.1.1.1, 198.51.100.1", "198.51.100.1"),  # what a client made up before it
        ("10.0.0.1", "198.51.100.1, 10.2.3.4", "198.51.100.1"),
        ("10.0.0.1", "10.2.3.4,10.9.9.9", "10.2.3.4"),
        ("10.0.0.1", "198.51.100.1, nonsense", "10.0.0.1"),
        ("10.0.0.1", "198.51.100.1:4711", "198.51.100.1"),
        ("10.0.0.1", "[2001:db8:1:2::3]:4711", "2001:db8:1:2::/64"),
        ("2001:db8:ffff::1", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.7", "", "203.0.113.7"),
        ("fe80::1%eth0", "", "fe80::/64"),
        ("", "198.51.100.1", "unknown"),
        ("10.0.0.1", "1" * 5000, "10.0.0.1"),
        ("10.0.0.1", ",".join(["10.0.0.2"] * 1000), "10.0.0.2"),
    ],
)
def test_the_right_most_address_that_no_proxy_of_ours_has(
    peer: str, forwarded_for: str, counted_as: str
) -> None:
    assert ClientAddresses(PROXIES).of(peer, forwarded_for) == counted_as


def test_without_trusted_proxies_the_peer_counts() -> None:
    assert ClientAddresses(()).of("10.0.0.1", "198.51.100.1") == "10.0.0.1"


def test_several_headers_are_one_list() -> None:
    scope = {
        "client": ("10.0.0.1", 5),
        "headers": [
            (b"x-forwarded-for", b"198.51.100.1"),
            (b"accept", b"*/*"),
            (b"x-forwarded-for", b"10.0.0.9"),
        ],
    }
    assert ClientAddresses(PROXIES).of_scope(scope) == "198.51.100.1"


def test_what_is_no_network_is_named() -> None:
    with pytest.raises(ConfigError, match=r"listen\.trusted_proxies\.1: .*10\.0\.0/8"):
        ClientAddresses(("10.0.0.0/8", "10.0.0/8"))
