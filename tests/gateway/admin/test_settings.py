"""`admin` of the file: what it refuses to start with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.config.yaml_file import Document
from headrace.errors import ConfigError
from headrace.gateway.admin.server import admin_key, admin_warnings
from headrace.gateway.admin.shown_settings import HIDDEN, shown_settings
from headrace.gateway.settings.admin import AdminSettings
from headrace.gateway.settings.changes import changes, wait_for_start
from headrace.gateway.settings.gateway import GatewaySettings
from headrace.gateway.settings.read import parse_settings
from headrace.gateway.settings.secret import Sources

FILE: dict[str, Any] = {
    "providers": {
        "a": {
            "base_url": "https://me:word@example.com/v1?token=hash",
            "dialect": "openai-chat",
            "api_key": ["sk-plain", "env:A_KEY"],
            "headers": {"x-team": "sk-in-a-header"},
        },
    },
    "models": {"chat": ["a/m"], "own": ["a/o"]},
    "access": {
        "master_key": "plain-master",
        "metrics_key": "plain-metrics",
        "redis": "redis://:hush@127.0.0.1",
        "keys": {"ci": {"key": "plain-client-key"}, "by-digest": {"sha256": "0" * 64}},
    },
    "admin": {"key": "plain-admin-key"},
}


def settings(**more: Any) -> GatewaySettings:
    return parse_settings(Document({**FILE, **more}, {}), "gateway.yaml")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "key: the admin port needs one"),
        ({"require_key": False, "host": "0.0.0.0"}, "require_key: false is only for hosts"),
        ({"require_key": False, "host": "gateway.internal"}, "reachable from others"),
        ({"key": "k", "port": 70_000}, "port"),
        ({"key": "k", "hots": ["x"]}, "hosts"),
    ],
)
def test_what_is_unsafe_or_unknown_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings(admin=given)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.8.8.8"])
def test_without_a_key_only_this_machine_itself(host: str) -> None:
    found = settings(admin={"require_key": False, "host": host}).admin
    assert found is not None and found.host == host
    assert settings(admin=None).admin is None


def test_a_short_key_is_refused_where_others_reach_the_port_and_warned_of_here(
    tmp_path: Path,
) -> None:
    sources = Sources({"KEY": "short"}, tmp_path)
    weak = AdminSettings(host="0.0.0.0", key="env:KEY")
    with pytest.raises(ConfigError, match=r"admin.key has 5 characters.*at least 16"):
        admin_key(weak, sources)
    (warning,) = admin_warnings(AdminSettings(key="env:KEY"), sources)
    assert warning.startswith("admin.key has 5 characters") and "openssl rand" in warning
    strong = Sources({"KEY": "0123456789abcdef"}, tmp_path)
    assert admin_warnings(AdminSettings(key="env:KEY"), strong) == ()
    (warning,) = admin_warnings(weak, strong)
    assert "admin.host 0.0.0.0" in warning and "without TLS" in warning


def test_no_secret_of_the_file_is_shown() -> None:
    shown = shown_settings(settings())
    for secret in ("sk-plain", "sk-in-a-header", "plain-", "hush", "hash", "word", "0" * 64):
        assert secret not in str(shown), secret
    assert shown["providers"]["a"]["api_key"] == [HIDDEN, "env:A_KEY"]
    assert shown["providers"]["a"]["base_url"] == f"https://{HIDDEN}@example.com/v1?{HIDDEN}"
    assert shown["models"]["chat"]["targets"][0]["model"] == "a/m"
    assert shown["access"]["require_key"] is True
    assert "plain" not in repr(settings().admin)


def test_changes_are_named_and_not_told() -> None:
    before = settings()
    after = settings(
        models={"chat": ["a/n"], "new": ["a/m"]}, ledger={"path": "other"}, log={"level": "debug"}
    )
    found = changes(before, after)
    assert found == ("ledger.path", "log.level", "models.chat", "models.new", "models.own")
    assert wait_for_start(found) == ("ledger.path",)
    assert changes(before, settings()) == ()
    assert changes(before, settings(admin={"key": "another"})) == ("admin.key",)
    assert wait_for_start(("admin.key",)) == ("admin.key",)
