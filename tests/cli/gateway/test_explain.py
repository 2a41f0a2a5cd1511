"""`headrace gateway explain` of models made of others, and of bodies as people have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.gateway.group import gateway
from headrace.errors import RequestError

MODELS: dict[str, Any] = {
    "chat": ["a/small"],
    "strong": ["a/strong"],
    "auto": {"choose": {"by": "rules", "default": "chat", "rules": [
        {"if": {"tools": True}, "use": "chat"}, {"if": {"matches": "prove"}, "use": "strong"},
    ]}},
    "hard": {"choose": {"by": "classifier", "default": "chat", "classifier": {"hard": "strong"}}},
    "careful": {"cascade": {"stages": ["chat", "strong"], "accept": {"by": "rules"}}},
}  # fmt: skip
PROVE = {"messages": [{"role": "user", "content": "Please prove it"}]}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    providers = {"a": "http://127.0.0.1:9/v1"}
    path.write_text(json.dumps({"providers": providers, "models": MODELS}), encoding="utf-8")
    return path


def explain(config: Path, model: str, body: Any, *more: str) -> Result:
    given = ["explain", model, "--config", str(config), "--request", "-", "--json", *more]
    return CliRunner().invoke(gateway, given, input=json.dumps(body))


@pytest.mark.parametrize("model", ["auto", "hard"])
def test_a_body_without_a_model_is_of_the_one_on_the_command_line(config: Path, model: str) -> None:
    told = explain(config, model, PROVE)
    assert told.exit_code == 0, told.output
    choice = json.loads(told.stdout)["choice"]
    assert choice["model"] is not None and choice["said"][0].startswith(f"{model}: ")
    assert "which needs a body with messages" not in told.output
    other = json.loads(explain(config, model, {**PROVE, "model": "another"}).stdout)
    assert other["choice"] == choice


def test_stages_are_in_the_order_in_which_they_are_asked(config: Path) -> None:
    found = json.loads(explain(config, "careful", PROVE).stdout)
    assert [one["target"] for one in found["candidates"]] == ["a/small", "a/strong"]


def test_a_body_that_cannot_be_read_is_told(config: Path) -> None:
    told = explain(config, "chat", {"messages": "x", "max_tokens": "y"})
    assert told.exit_code == 0 and "note: the body is not a readable chat completion" in told.stderr
    assert "messages" in told.stderr
    assert "note" not in explain(config, "chat", PROVE).stderr
    bare = explain(config, "auto", {})
    assert "auto: by rules, which needs a body with messages" in bare.stdout and not bare.stderr


@pytest.mark.long
def test_it_is_explained_for_a_key(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    at = {"base_url": "http://127.0.0.1:9/v1"}
    access = {
        "store": "gateway.db",
        "teams": {"careful": {"data_collection": "deny"}},
        "keys": {
            "ci": {"key": "env:NOT_SET_HERE", "models": ["chat"]},
            "shy": {"key": "env:NOT_SET_HERE", "team": "careful", "regions": ["eu"]},
        },
    }
    providers = {
        "a": at,
        "b": {**at, "keeps_data": False, "region": "us"},
        "c": {**at, "keeps_data": False, "region": "eu"},
    }
    models = {"chat": ["a/m", "b/m", "c/m"], "other": "a/n"}
    path.write_text(json.dumps({"providers": providers, "models": models, "access": access}))

    def asked(*more: str) -> list[str]:
        told = explain(path, "chat", {}, *more)
        assert told.exit_code == 0, told.output
        return sorted(one["target"] for one in json.loads(told.stdout)["candidates"])

    made = CliRunner().invoke(
        gateway,
        ["keys", "create", "--config", str(path), "--label", "bot", "--team", "careful", "--json"],
    )
    assert asked() == asked("--key", "ci") == ["a/m", "b/m", "c/m"]
    assert asked("--key", "shy") == ["c/m"]
    stored = json.loads(made.stdout)["id"]
    assert asked("--key", "bot") == asked("--key", stored) == ["b/m", "c/m"]
    told = explain(path, "other", {}, "--key", "ci")
    assert isinstance(told.exception, RequestError) and "may use" in str(told.exception)
    told = explain(path, "chat", {}, "--key", "cii")
    assert isinstance(told.exception, RequestError) and "did you mean 'ci'" in str(told.exception)
