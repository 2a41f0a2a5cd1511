from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import cli

FILE = """
providers: {a: http://127.0.0.1:9/v1}
models: {}
access:
  store: gateway.db
  teams: {red: {}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(FILE.replace("a: http", "a: {dialect: openai-chat, base_url: http").replace(
        "/v1}", "/v1}}"))  # fmt: skip
    return path


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["gateway", "keys", *words])


def listed(config: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(
        run("list", "--config", str(config), "--json").output
    )
    return found


def test_a_key_is_shown_once_and_kept_as_a_digest(config: Path) -> None:
    words = ("--config", str(config), "--team", "red", "--label", "search", "--usd", "5",
             "--rpm", "10", "--model", "gpt-*", "--json")  # fmt: skip
    made = json.loads(run("create", *words).output)
    assert made["key"].startswith("hr-") and len(made["key"]) == 46
    (kept,) = listed(config)
    assert kept["id"] == made["id"] and kept["ends"] == [made["key"][-4:]]
    assert kept["parent"] == "team red" and kept["models"] == ["gpt-*"]
    stored = b"".join(one.read_bytes() for one in config.parent.glob("gateway.db*"))
    assert made["key"].encode() not in stored
    assert "search" in run("list", "--config", str(config)).output


def test_rotate_block_and_delete(config: Path) -> None:
    at = ("--config", str(config))
    made = json.loads(run("create", *at, "--json").output)
    again = json.loads(run("rotate", made["id"], *at, "--overlap-days", "1", "--json").output)
    assert again["id"] == made["id"] and again["key"] != made["key"]
    assert len(listed(config)[0]["ends"]) == 2  # type: ignore[arg-type]
    assert "blocked" in run("block", made["id"], *at).output
    assert listed(config)[0]["blocked"] is True
    assert "open again" in run("block", made["id"], "--off", *at).output
    assert "blocked" in run("block", made["id"], *at).output
    unblocked = json.loads(run("unblock", made["id"], *at, "--json").output)
    assert unblocked == {"id": made["id"], "blocked": False}
    assert listed(config)[0]["blocked"] is False
    assert "removed" in run("delete", made["id"], *at).output
    assert listed(config) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rotate", "nope"), "nope"),
        (("block", "nope"), "nope"),
        (("create", "--team", "blue"), "blue"),
        (("create", "--team", "red", "--user", "ann"), "belongs to one"),
        (("create", "--usd", "-1"), "amount"),
    ],
)
def test_what_is_not_possible_is_said(config: Path, words: tuple[str, ...], said: str) -> None:
    done = run(*words, "--config", str(config))
    assert done.exit_code and said in str(done.output) + str(done.exception)


def test_without_a_store_it_says_how_to_have_one(config: Path) -> None:
    config.write_text("models: {}\n")
    done = run("list", "--config", str(config))
    assert done.exit_code and "access.store" in str(done.output) + str(done.exception)
