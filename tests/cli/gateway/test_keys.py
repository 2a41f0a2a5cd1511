from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import cli
from headrace.gateway.accounts import SqliteStore
from headrace.gateway.accounts.meter import Meter, meters_of
from headrace.gateway.accounts.store import SpentMore

FILE = """
providers: {a: http://127.0.0.1:9/v1}
models: {chat: [a/m]}
aliases: {talk: chat}
access:
  store: gateway.db
  teams: {red: {}}
  keys: {ci: {key: "env:NOT_IN_THE_ENVIRONMENT"}}
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


def budgets_listed(config: Path) -> list[dict[str, Any]]:
    found: Any = listed(config)[0]["budgets"]
    return list(found)


def test_a_key_is_shown_once_and_kept_as_a_digest(config: Path) -> None:
    words = ("--config", str(config), "--team", "red", "--label", "search", "--usd", "5",
             "--rpm", "10", "--model", "gpt-*", "--json")  # fmt: skip
    made = json.loads(run("create", *words).stdout)
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
    assert "is unblocked" in run("block", made["id"], "--off", *at).output
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
        (("create", "--team", "red", "--user", "ann"), "belongs to only one"),
        (("create", "--team", "blue"), "access.teams"),
        (("create", "--usd", "-1"), "'--usd': '-1' is not an amount of US dollars"),
        (("create", "--usd", "nan"), "not an amount of US dollars"),
        (("create", "--per", "1d"), "give --usd too"),
        (("create", "--rpm", "-1"), "--rpm"),
        (("edit", "nope", "--rpm", "1"), "nope"),
        (("edit", "nope"), "nothing to change"),
        (("edit", "nope", "--model", "none", "--model", "chat"), "--model none"),
        (("rotate", "ci"), "access.keys.ci"),
        (("edit", "ci", "--rpm", "1"), "access.keys.ci"),
    ],
)
def test_what_is_not_possible_is_said(config: Path, words: tuple[str, ...], said: str) -> None:
    done = run(*words, "--config", str(config))
    assert done.exit_code and said in str(done.output) + str(done.exception)


def test_without_a_store_it_says_how_to_have_one(config: Path) -> None:
    config.write_text("models: {}\n")
    done = run("list", "--config", str(config))
    assert done.exit_code and "access.store" in str(done.output) + str(done.exception)


def test_a_key_is_changed_and_what_is_not_given_stays(config: Path) -> None:
    at = ("--config", str(config), "--json")
    made = json.loads(
        run("create", *at, "--label", "bot", "--usd", "5", "--rpm", "10", "--tpm", "900").output
    )
    changed = run("edit", made["id"], *at, "--usd", "20", "--rpm", "none", "--concurrency", "3",
                  "--model", "chat", "--expires-days", "2")  # fmt: skip
    (now,) = listed(config)
    assert json.loads(changed.stdout) == now
    assert (now["id"], now["label"], now["models"]) == (made["id"], "bot", ["chat"])
    assert now["limits"] == [{"model": "*", "rpm": None, "tpm": 900, "concurrency": 3}]
    budget = now["budgets"][0]  # type: ignore[index]
    assert (budget["limit_text"], budget["used_text"], budget["per"]) == ("$20.00", "$0.00", "1M")
    assert now["expires_ms"] is not None and now["ends"] == [made["key"][-4:]]
    run("edit", made["id"], *at, "--usd", "none", "--tpm", "none", "--concurrency", "none",
        "--model", "none", "--expires-days", "none", "--label", "new")  # fmt: skip
    (now,) = listed(config)
    assert (now["budgets"], now["limits"], now["models"]) == ([], [], [])
    assert (now["expires_ms"], now["label"]) == (None, "new")


def test_the_window_of_a_budget_is_changed(config: Path) -> None:
    at = ("--config", str(config))
    made = json.loads(run("create", *at, "--json", "--usd", "5", "--per", "1M").output)
    said = run("edit", made["id"], *at, "--per", "1d").output
    assert "$0.00 of $5.00 per 1d" in said and "ends never" in said
    assert run("edit", made["id"], *at, "--usd", "none").exit_code == 0
    assert "no such budget" in run("edit", made["id"], *at, "--per", "1d").output


def test_a_budget_is_raised_for_a_while(config: Path) -> None:
    at = ("--config", str(config))
    id = json.loads(run("create", *at, "--json", "--usd", "5", "--rpm", "9").output)["id"]
    said = run("edit", id, *at, "--raise-budget-to", "20", "--until", "2199-12-30").output
    assert "of $5.00 per 1M; raised to $20.00 until 2199-12-31 00:00Z" in said
    (budget,) = budgets_listed(config)
    assert (budget["limit"], budget["raised_to"]) == (5 * 10**9, 20 * 10**9)
    (meter,) = budgets_of(config, id)
    ends_ms = budget["raised_until_ms"]
    assert [meter.limit(ends_ms - 1), meter.limit(ends_ms)] == [20 * 10**9, 5 * 10**9]
    said = run("edit", id, *at, "--rpm", "3").output
    assert "raised to $20.00" in said, "what is not given stays"
    said = run(
        "edit", id, *at, "--raise-budget-to", "6", "--until", "2199-01-01T18:00+02:00"
    ).output
    assert "raised to $6.00 until 2199-01-01 16:00Z" in said
    assert "raised" not in run("edit", id, *at, "--raise-budget-to", "none").output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--raise-budget-to", "20"), "belong together"),
        (("--until", "2199-12-31"), "belong together"),
        (("--raise-budget-to", "none", "--until", "2199-12-31"), "no --until"),
        (("--raise-budget-to", "20", "--until", "2020-12-31"), "is past"),
        (("--raise-budget-to", "20", "--until", "soon"), "2026-12-31"),
        (("--raise-budget-to", "4", "--until", "2199-12-31"), "below the budget"),
        (
            ("--raise-budget-to", "20", "--until", "2199-12-31", "--per", "1d", "--usd", "none"),
            "removes the budget",
        ),
    ],
)
def test_a_raise_that_is_none_changes_nothing(
    config: Path, words: tuple[str, ...], said: str
) -> None:
    at = ("--config", str(config))
    id = json.loads(run("create", *at, "--json", "--usd", "5").output)["id"]
    done = run("edit", id, *at, *words)
    assert done.exit_code == 2 and said in done.output
    (budget,) = budgets_listed(config)
    assert (budget["limit"], budget["raised_to"]) == (5 * 10**9, None)


def test_the_list_shows_budgets_limits_use_and_end_in_80_columns(config: Path) -> None:
    at = ("--config", str(config))
    run("create", *at, "--label", "search bot", "--team", "red", "--usd", "5", "--rpm", "1200",
        "--expires-days", "30", "--model", "chat")  # fmt: skip
    spend(config, listed(config)[0]["id"], 1_250_000_000)
    said = run("list", *at).output
    assert max(len(line) for line in said.splitlines()) <= 80
    text = " ".join(said.split())
    for part in (
        "search bot",
        "team red",
        "chat",
        "$1.25 of $5.00 per 1M",
        "1,200 rpm",
        "until 20",
    ):
        assert part in text, part
    assert listed(config)[0]["budgets"][0]["used"] == 1_250_000_000  # type: ignore[index]


def test_a_model_that_the_file_has_not_is_warned_of(config: Path) -> None:
    at = ("--config", str(config), "--json")
    made = run("create", *at, "--model", "nope", "--model", "ch*", "--model", "talk",
               "--model", "a/anything")  # fmt: skip
    assert made.stderr.count("warning") == 1 and "--model nope" in made.stderr
    id = json.loads(made.stdout)["id"]
    assert "--model gpt" in run("edit", id, *at, "--model", "gpt").stderr


def budgets_of(config: Path, id: str) -> list[Meter]:
    async def read() -> list[Meter]:
        store = await SqliteStore.open(
            config.parent / "gateway.db", now_ns=time.time_ns, random_bytes=os.urandom
        )
        (record,) = (await store.read()).keys
        await store.close()
        return [one for one in meters_of("key", id, record.terms) if one.is_budget]

    return asyncio.run(read())


def test_what_keys_of_the_file_have_can_be_given_and_taken_away(config: Path) -> None:
    with config.open("a") as file:
        file.write("guardrails: {secrets: {kind: pii}}\n")
    at = ("--config", str(config), "--json")
    given = ("--tag", "a", "--tag", "b", "--guardrail", "secrets", "--priority", "low",
             "--data-collection", "deny", "--zero-retention", "--region", "eu",
             "--when-stores-are-down", "open", "--usd", "5", "--calendar")  # fmt: skip
    made = run("create", *at, *given)
    assert made.exit_code == 0, made.output
    id = json.loads(made.stdout)["id"]
    has = {"tags": ["a", "b"], "guardrails": ["secrets"], "priority": 1, "data_collection": "deny",
           "zero_retention": True, "regions": ["eu"], "when_stores_are_down": "open"}  # fmt: skip
    (now,) = listed(config)
    assert {name: now[name] for name in has} == has
    assert now["budgets"][0]["calendar"] is True  # type: ignore[index]
    said = " ".join(run("list", "--config", str(config)).output.split())
    assert "tags a, b" in said and "open when stores are down" in said
    run("edit", id, *at, "--label", "x", "--usd", "6")
    (now,) = listed(config)
    assert {name: now[name] for name in has} == has, "what is not given stays"
    changed = run("edit", id, *at, "--tag", "none", "--guardrail", "none", "--priority", "none",
                  "--data-collection", "allow", "--no-zero-retention", "--region", "none",
                  "--when-stores-are-down", "none", "--rolling")  # fmt: skip
    now = json.loads(changed.stdout)
    assert [now[name] for name in has] == [[], [], None, "allow", False, None, None]
    assert now["budgets"][0]["calendar"] is False
    assert json.loads(run("edit", id, *at, "--priority", "-7").stdout)["priority"] == -7


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--guardrail", "secret"), "is not a guardrail of this gateway; did you mean 'secrets'"),
        (("--priority", "urgent"), "one of high, normal, low"),
        (("--priority", "1001"), "a whole number from -1000 to 1000"),
        (("--calendar",), "give --usd too"),
    ],
)
def test_wishes_that_no_key_can_have(config: Path, words: tuple[str, ...], said: str) -> None:
    with config.open("a") as file:
        file.write("guardrails: {secrets: {kind: pii}}\n")
    told = run("create", "--config", str(config), *words)
    assert told.exit_code != 0 and said in " ".join(told.output.split()) + str(told.exception)
    assert listed(config) == []


def spend(config: Path, id: object, nusd: int) -> None:
    async def add() -> None:
        store = await SqliteStore.open(
            config.parent / "gateway.db", now_ns=time.time_ns, random_bytes=os.urandom
        )
        (record,) = (await store.read()).keys
        (meter,) = (one for one in meters_of("key", str(id), record.terms) if one.is_budget)
        bucket = meter.window.bucket(time.time_ns() // 10**6)
        more = SpentMore(meter.id, bucket, nusd, meter.window.leaves_ms(bucket))
        await store.add_spent([more])
        await store.close()

    asyncio.run(add())
