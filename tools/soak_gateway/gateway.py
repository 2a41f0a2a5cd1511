"""A `headrace gateway` of its own, with most of what it can do switched on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READY_TIMEOUT_S = 60
END_TIMEOUT_S = 60
MASTER = "hr-soak-master"
KEYS = ("hr-soak-first", "hr-soak-second", "hr-soak-poor")
INPUT_USD, OUTPUT_USD = 1.0, 3.0


@dataclass(frozen=True)
class Gateway:
    """One that answers. Its log is a file, so that it can be searched for secrets."""

    url: str
    ledger: Path
    log: Path
    process: subprocess.Popen[str]

    def reload(self) -> None:
        """Have it read its file anew."""
        self.process.send_signal(signal.SIGHUP)


def write_settings(folder: Path, providers: dict[str, str], workers: int) -> Path:
    """Two providers behind three models: in turns, by session, and with a cache."""
    price = {"input": INPUT_USD, "output": OUTPUT_USD}
    own = {"dialect": "openai-chat", "api_key": ["env:SOAK_ONE", "env:SOAK_TWO"]}
    targets = [{"model": f"{name}/m", "price": price} for name in providers]
    settings: dict[str, Any] = {
        "listen": {"port": 0, "max_body_bytes": 1 << 19},
        "access": {
            "master_key": "env:SOAK_MASTER",
            "store": "accounts.db",
            "teams": {"mill": {"budgets": [{"usd": 1e6, "per": "1M"}]}},
            "keys": {
                "first": {"key": "env:SOAK_FIRST", "team": "mill"},
                "second": {"key": "env:SOAK_SECOND", "limits": [{"concurrency": 200}]},
                "poor": {"key": "env:SOAK_POOR", "team": "mill",
                         "limits": [{"rpm": 60}], "budgets": [{"usd": 0.01, "per": "1m"}]},
            },
        },
        "providers": {name: {"base_url": url, **own} for name, url in providers.items()},
        "models": {
            "chat": {"targets": targets},
            "sticky": {"targets": targets, "strategy": "latency", "sticky": "session"},
            "kept": {"targets": targets, "strategy": "least_busy"},
        },
        "cache": {"enabled": True, "models": ["kept"], "all": True, "max_bytes": 1 << 20},
        "ledger": {"path": "ledger.sqlite"},
        # A provider that hangs is found out within a soak's patience.
        "timeouts": {"connect_s": 1.0, "first_token_s": 3.0, "idle_s": 2.0, "total_s": 20.0},
        "retries": {"backoff_s": 0.05, "backoff_max_s": 0.5},
        "breaker": {"cooldown_s": 0.5, "cooldown_max_s": 2.0},
    }  # fmt: skip
    if workers > 1:
        settings["listen"]["workers"] = workers
    path = folder / "gateway.yaml"
    path.write_text(json.dumps(settings))  # JSON is YAML
    return path


@contextmanager
def serving(folder: Path, providers: dict[str, str], workers: int) -> Iterator[Gateway]:
    """Start it on a free port of loopback; SIGTERM ends it. Raises RuntimeError if it does not
    start."""
    path = write_settings(folder, providers, workers)
    secrets = {"SOAK_MASTER": MASTER, "SOAK_ONE": "sk-soak-provider-1"}
    secrets["SOAK_TWO"] = "sk-soak-provider-2"
    secrets |= dict(zip(("SOAK_FIRST", "SOAK_SECOND", "SOAK_POOR"), KEYS, strict=True))
    log = folder / "gateway.log"
    command = [sys.executable, "-m", "headrace", "gateway", "--config", str(path), "--json"]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=os.environ | secrets
        )
    watchdog = threading.Timer(READY_TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        watchdog.cancel()
        if not line:
            raise RuntimeError(f"the gateway ended with {process.wait()}: {log.read_text()}")
        yield Gateway(json.loads(line)["url"], folder / "ledger.sqlite", log, process)
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
