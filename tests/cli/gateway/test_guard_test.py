"""`headrace gateway guard-test` and `headrace gateway prompts` as people use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from headrace.cli.gateway.group import gateway
from headrace.errors import ConfigError, RequestError

FILE: dict[str, Any] = {
    "providers": {"a": "http://127.0.0.1:9/v1"},
    "models": {"chat": [{"model": "a/m", "price": {"input": 1, "output": 1}}]},
    "access": {"require_key": False},
    "guardrails": {
        "mail": {"kind": "pii", "find": ["email"], "on": "input", "action": "redact"},
        "words": {"kind": "regex", "patterns": ["(?i)internal only"], "on": "output"},
        "tools": {"kind": "allowed_tools", "allow": ["search_*"], "on": "input"},
    },
    "prompts": {
        "support": {
            "versions": {
                1: {"messages": [{"role": "system", "content": "You help {{name}}."}]},
                2: {"messages": [{"role": "user", "content": "{{name}} and {{other}}"}]},
            },
            "labels": {"production": {1: 90, 2: 10}, "staging": 2},
        }
    },
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(yaml.safe_dump(FILE), encoding="utf-8")
    return path


def run(config: Path, *words: str, told: str | None = None) -> Result:
    return CliRunner().invoke(
        gateway, [*words, "--config", str(config)], input=told, catch_exceptions=False
    )


def test_what_each_guardrail_would_do(config: Path) -> None:
    text = "write to ada@example.com, Internal Only"
    told = run(config, "guard-test", "--json", text)
    found = {one["guardrail"]: one for one in map(json.loads, told.stdout.splitlines())}
    assert told.exit_code == 1
    assert found["mail"]["action"] == "redact"
    assert found["mail"]["text"] == "write to [EMAIL], Internal Only"
    assert found["words"]["action"] == "block" and found["words"]["text"] is None
    told = run(config, "guard-test", "--guardrail", "mail", told=text)
    assert told.exit_code == 0 and "[EMAIL]" in told.stdout
    assert run(config, "guard-test", "--guardrail", "tools", "search_web").exit_code == 0
    assert run(config, "guard-test", "--guardrail", "tools", "delete").exit_code == 1
    with pytest.raises(RequestError, match="mail"):
        run(config, "guard-test", "--guardrail", "mial", "x")


def test_on_is_a_word_though_yaml_takes_it_for_true(config: Path) -> None:
    config.write_text(
        "guardrails: {mail: {kind: pii, on: input, action: redact}}\n", encoding="utf-8"
    )
    told = run(config, "guard-test", "--json", "ada@example.com")
    assert [json.loads(one)["on"] for one in told.stdout.splitlines()] == ["input"]


def test_a_file_without_any_is_told(config: Path) -> None:
    config.write_text("models: {}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="no guardrails"):
        run(config, "guard-test", "x")
    with pytest.raises(ConfigError, match="no prompts"):
        run(config, "prompts", "list")


def test_prompts_are_listed_shown_and_rendered(config: Path) -> None:
    (one,) = json.loads(run(config, "prompts", "list", "--json").stdout)
    labels = {"production": {"1": 90.0, "2": 10.0}, "staging": {"2": 1.0}}
    assert one == {"name": "support", "versions": ["1", "2"], "labels": labels}
    assert "support: versions 1, 2" in run(config, "prompts", "list").stdout
    shown = json.loads(run(config, "prompts", "show", "support", "--json").stdout)
    assert [version["variables"] for version in shown["versions"]] == [["name"], ["name", "other"]]
    told = run(config, "prompts", "render", "support", "--version", "1", "--var", "name=Ada")
    assert told.stdout == "system:\n  You help Ada.\n"
    rendered = run(
        config, "prompts", "render", "support", "--label", "staging", "--var", "name=A",
        "--var", "other=B", "--json",
    )  # fmt: skip
    assert json.loads(rendered.stdout) == {
        "prompt": "support@2", "messages": [{"role": "user", "content": "A and B"}],
    }  # fmt: skip
    with pytest.raises(RequestError, match="lacks "):
        run(config, "prompts", "render", "support", "--version", "2", "--var", "name=A")
    with pytest.raises(ConfigError, match="support"):
        run(config, "prompts", "show", "suport")


def test_check_warns_of_a_secret_in_the_file(config: Path) -> None:
    webhook = {"kind": "webhook", "url": "http://127.0.0.1:9/", "headers": {"x-token": "abc"}}
    config.write_text(yaml.safe_dump({**FILE, "guardrails": {"w": webhook}}), encoding="utf-8")
    told = run(config, "check")
    assert told.exit_code == 0 and "guardrails.w.headers.x-token" in told.output


def test_check_names_the_guardrail_and_the_version_that_are_wrong(config: Path) -> None:
    bad = {**FILE, "guardrails": {"w": {"kind": "regex", "patterns": ["(?=x)"]}}}
    config.write_text(yaml.safe_dump(bad), encoding="utf-8")
    told = run(config, "check")
    assert told.exit_code == 1 and "guardrails.w" in told.output
    versions = {1: {"messages": [{"role": "user", "content": "{{a}}"}], "example": {}}}
    config.write_text(yaml.safe_dump({**FILE, "prompts": {"p": {"versions": versions}}}))
    told = run(config, "check")
    assert told.exit_code == 1 and "prompts.p.versions.1.example" in told.output
