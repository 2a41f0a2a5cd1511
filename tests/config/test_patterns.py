"""Texts of settings that do not match: what is said of them, in flags and in the gateway's file."""

from __future__ import annotations

import json

import pytest

from headrace.config import ServerConfig, build
from headrace.errors import ConfigError
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.read import settings_of_text

WORDS = "a host name without scheme and port, *.NAME or *"


def of_flags(name: str) -> ServerConfig:
    return build(ServerConfig, {"allowed_hosts": [name]}, source="settings")


def of_file(name: str) -> GatewaySettings:
    text = json.dumps({"listen": {"allowed_hosts": [name]}, "providers": {"a": "http://127.0.0.1"}})
    return settings_of_text(text, "gateway.yaml")


@pytest.mark.parametrize("name", ["llm.example", "*.llm.example", "*", "my_machine", "192.0.2.1"])
def test_names_of_hosts(name: str) -> None:
    assert of_flags(name).allowed_hosts == (name,)
    assert of_file(name).listen.allowed_hosts == (name,)


@pytest.mark.parametrize("name", ["http://x", "x:80", "", "*x", "a b", "[::1]", "-x", "x\n"])
def test_what_is_not_the_name_of_a_host(name: str) -> None:
    with pytest.raises(ConfigError) as of_flag:
        of_flags(name)
    assert str(of_flag.value).endswith(f"expected {WORDS}")
    assert "--allowed-hosts" in str(of_flag.value)
    with pytest.raises(ConfigError) as in_file:
        of_file(name)
    assert "listen.allowed_hosts" in str(in_file.value)
    assert f"{WORDS} is expected" in str(in_file.value)


def test_a_key_is_described_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="visible ASCII characters without spaces") as caught:
        build(ServerConfig, {"api_key": ["se cret"]}, source="settings")
    assert "cret" not in str(caught.value)
