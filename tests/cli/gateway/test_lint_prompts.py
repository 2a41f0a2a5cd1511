"""`headrace gateway lint-prompts` on files of requests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.gateway.group import gateway
from headrace.errors import ConfigError

RULES = "Answer every question of a customer in one sentence and name your source. " * 80


@pytest.fixture
def requests(tmp_path: Path) -> Path:
    path = tmp_path / "requests.jsonl"
    lines = [
        {
            "model": "gpt-5-mini",
            "messages": [
                {"role": "system", "content": f"Now: 2026-11-22T15:04:0{at}Z. {RULES}"},
                {"role": "user", "content": f"Question {at}"},
            ],
        }
        for at in range(4)
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(gateway, ["lint-prompts", *arguments])


def test_a_file_needs_no_gateway(requests: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(requests.parent)
    text = run("--file", str(requests)).output
    assert "4 requests, 1 findings" in text
    assert "moving-prefix  gpt-5-mini" in text and "timestamp: '2026-11-22T15:04:00Z'" in text
    (line,) = run("--file", str(requests), "--json").output.splitlines()
    found = json.loads(line)
    assert found["moving"] == "timestamp" and found["path"] == "messages[0].content"
    # 0.25 - 0.025 dollars a million.
    assert found["usd_per_1000_requests"] == pytest.approx(found["tokens"] * 0.225e-3)


def test_models_of_a_gateways_file_have_its_prices(requests: Path, tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text(
        "providers:\n  own: {base_url: 'http://127.0.0.1:9', dialect: openai-chat}\n"
        "models:\n  gpt-5-mini:\n    - model: own/m\n"
        "      price: {input: 10, output: 20, cache_read: 1}\n",
        encoding="utf-8",
    )
    (line,) = run("--file", str(requests), "--config", str(config), "--json").output.splitlines()
    found = json.loads(line)
    assert found["usd_per_1000_requests"] == pytest.approx(found["tokens"] * 9e-3)


def test_nothing_to_look_at(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("", encoding="utf-8")
    config = tmp_path / "gateway.yaml"
    config.write_text("access: {require_key: false}\n", encoding="utf-8")
    told = run("--file", str(empty), "--config", str(config))
    assert isinstance(told.exception, ConfigError) and "no chat requests" in str(told.exception)
    told = run("--config", str(config))
    assert isinstance(told.exception, ConfigError) and "request_log" in str(told.exception)
