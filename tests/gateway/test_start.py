"""What a start says and what it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.gateway.accounts.counters import CountersState
from headrace.gateway.run import announce
from headrace.gateway.settings.read import read_settings

# What only files ask for that use it.
NOT_NEEDED = (
    "google", "jinja2", "jsonschema_rs", "numpy", "opentelemetry", "prometheus_client", "psycopg",
    "re2", "redis", "tokenizers", "torch",
    "headrace.gateway.admin", "headrace.gateway.cache", "headrace.gateway.credentials",
    "headrace.gateway.engines", "headrace.gateway.feedback", "headrace.gateway.guards.guardrails",
    "headrace.gateway.prompts", "headrace.gateway.request_log.written_log",
    "headrace.gateway.serving.composed.ways", "headrace.gateway.serving.shadowing",
    "headrace.gateway.workers",
    "headrace.protocol.dialects.anthropic.client", "headrace.protocol.dialects.gemini",
    "headrace.protocol.dialects.ollama.client", "headrace.protocol.dialects.bedrock",
    "headrace.protocol.dialects.openai_responses.client",
)  # fmt: skip
START = """
import json, socket, sys
from pathlib import Path

def refuse(*given, **named):
    raise AssertionError("a start asks nobody")

socket.socket.connect = socket.getaddrinfo = refuse
import headrace.gateway.run
from headrace.gateway.assemble import CliOverrides, made, settings_from
path = Path(sys.argv[1])
made(path, settings_from(path, CliOverrides()), None)
print(json.dumps(sorted(sys.modules)))
"""


KEYS: dict[str, Any] = {"keys": {"k": {"key": "env:HOME"}}}


def settings_file(folder: Path, **more: Any) -> Path:
    path = folder / "gateway.yaml"
    settings = {
        "providers": {"own": "http://127.0.0.1:8000/v1"},
        "models": {"chat": ["own/m"]},
        **more,
    }
    path.write_text(json.dumps(settings))
    return path


@pytest.mark.process
def test_a_start_imports_what_the_file_uses_and_asks_no_network(tmp_path: Path) -> None:
    path = settings_file(tmp_path, access={"require_key": False})
    done = subprocess.run(
        [sys.executable, "-c", START, str(path)], capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout)
    found = {one for one in NOT_NEEDED for name in loaded if f"{name}.".startswith(f"{one}.")}
    assert not found


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"access": {}}, "EVERY REQUEST IS REFUSED: a key is required and no key is known"),
        ({"access": KEYS}, "limits and budgets apply to this process"),
        ({"access": KEYS, "listen": {"workers": 3}}, "limits and budgets apply to this machine"),
        (
            {"access": {**KEYS, "redis": "redis://127.0.0.1"}},
            "limits and budgets apply to the cluster",
        ),
        ({"access": {"require_key": False}}, "anyone who can reach it may use it"),
    ],
)
def test_the_reach_of_limits_is_said_at_the_start(
    more: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    announce("http://127.0.0.1:4000", read_settings(settings_file(tmp_path, **more)), False)
    assert said in capsys.readouterr().out


def test_a_redis_that_is_not_there_is_said_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = settings_file(tmp_path, access={**KEYS, "redis": "redis://127.0.0.1"})
    lost = CountersState(reach="cluster", reachable=False, problem="Redis: ConnectionError")
    announce("http://127.0.0.1:4000", read_settings(file), False, counters=lost)
    assert "NOT COUNTED NOW: Redis: ConnectionError" in capsys.readouterr().out
