"""`headrace gateway usage` and `log`: what is printed of a ledger."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import signal
import typing
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from headrace.cli.gateway.group import gateway
from headrace.cli.gateway.log import OUTCOMES
from headrace.cli.gateway.usage import usage
from headrace.errors import HeadraceError
from headrace.gateway.ledger.newest import EntryFilter, newest
from headrace.gateway.ledger.schema import reading
from headrace.gateway.ledger.usage import GROUPINGS
from headrace.gateway.serving.entry import AttemptEntry, Outcome
from tests.cli.gateway_process import started
from tests.gateway.ledger.entries import DAY_S, NOVEMBER_S, entry, refused, written

FAILED = AttemptEntry(
    target="b/m", began_ms=0.0, lasted_ms=7.0, failure="server", status=500, message="boom"
)
ENTRIES = (
    entry(1, key="k1", team="search"),
    entry(
        2,
        key="k2",
        cost_nusd=None,
        attempts=(FAILED, *entry().attempts),
        ignored=("seed", "user"),
        skipped=("c/m: it does not support\nn; omit it",),
    ),
    refused(3, model="=cmd()", error="too\nmany \x1b[31m"),
    entry(4, key="k1", at_s=float(NOVEMBER_S + DAY_S)),
)


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Runs a command of `headrace gateway` beside a file that names a ledger."""
    written(tmp_path / "kept.sqlite3", *ENTRIES)
    config = tmp_path / "gateway.yaml"
    config.write_text("ledger: {path: kept.sqlite3}\n", encoding="utf-8")

    def command(name: str, *arguments: str, code: int = 0) -> Result:
        given = [name, "--config", str(config), *arguments]
        result = CliRunner().invoke(gateway, given)
        assert result.exit_code == code, result.output + repr(result.exception)
        return result

    return command


def test_a_table_for_people(run: Any) -> None:
    said = run("usage", "--by", "key").output
    (line,) = [one for one in said.splitlines() if one.split()[:1] == ["k1"]]
    assert "0.000036" in line and "24" in line and "10 / 10" in line
    assert "requests of unknown price: 1 (" in said


def test_keys_have_their_labels_beside_them(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text("ledger: {path: kept.sqlite3}\naccess: {store: gateway.db}\n")
    at = ("--config", str(config))
    made = CliRunner().invoke(gateway, ["keys", "create", *at, "--label", "=bot", "--json"])
    id = json.loads(made.stdout)["id"]
    written(tmp_path / "kept.sqlite3", entry(1, key=id), entry(2, key="k2"))

    def said(*words: str) -> str:
        return CliRunner().invoke(gateway, [words[0], *at, *words[1:]]).output

    assert f"{id} (=bot)" in said("usage", "--by", "key")
    assert f"key {id} (=bot)" in said("log")
    lines = said("usage", "--by", "key", "--json").splitlines()
    told = {one["key"]: one["key_label"] for one in map(json.loads, lines)}
    assert told == {id: "=bot", "k2": ""}
    rows = csv.DictReader(io.StringIO(said("usage", "--by", "key", "--csv")))
    assert [one["key_label"] for one in rows if one["key"] == id] == ["'=bot"]
    assert "key_label" not in said("usage", "--by", "model", "--csv")


def test_json_has_an_object_for_each_group(run: Any) -> None:
    lines = run("usage", "--by", "day,key", "--json").output.splitlines()
    found = [json.loads(one) for one in lines]
    assert [(one["day"], one["key"], one["requests"]) for one in found] == [
        ("2026-11-01", "", 1),
        ("2026-11-01", "k1", 1),
        ("2026-11-01", "k2", 1),
        ("2026-11-02", "k1", 1),
    ]
    assert found[1]["cost_nusd"] == 18_000 and found[1]["cost_usd"] == "0.000018"
    assert found[2]["cost_nusd"] == 0 and found[2]["unknown_cost"] == 1


def test_csv_holds_every_column_and_no_formula(run: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(run("usage", "--by", "model", "--csv").output)))
    assert [one["model"] for one in rows] == ["'=cmd()", "chat"]
    assert rows[1]["requests"] == "3" and rows[1]["input_tokens"] == "36"
    assert rows[1]["cost_usd"] == "0.000036" and rows[1]["unknown_cost"] == "1"
    assert rows[0]["first_token_ms_p50"] == ""


def test_days_and_a_ledger_by_its_own_name(run: Any, tmp_path: Path) -> None:
    said = run(
        "usage", "--ledger", str(tmp_path / "kept.sqlite3"), "--since", "2026-11-02", "--json"
    ).output
    assert json.loads(said)["requests"] == 1


def test_the_log_shows_what_was_tried(run: Any) -> None:
    lines = run("log").output.splitlines()
    assert lines[0].startswith("2026-11-01 00:00:01Z  req-1  answered  200")
    at = next(at for at, one in enumerate(lines) if "req-2 " in one)
    assert "chat -> a/m" in lines[at] and "cost unknown" in lines[at] and "key k2" in lines[at]
    assert lines[at + 1] == "    b/m: server 500, 7 ms: boom"
    assert lines[at + 2].startswith("    a/m: answered 200")
    assert lines[at + 3] == "    c/m: it does not support n; omit it (skipped)"
    assert lines[at + 4] == "    ignored: seed, user"
    assert "    too many \\x1b[31m" in lines, (
        "nothing of a stranger's reaches the terminal as it is"
    )


def test_the_log_is_chosen_from_and_has_the_newest_last(run: Any) -> None:
    def ids(*arguments: str) -> list[str]:
        return [json.loads(one)["id"] for one in run("log", "--json", *arguments).output.split("\n")
                if one]  # fmt: skip

    assert ids() == ["req-1", "req-2", "req-3", "req-4"]
    assert ids("--limit", "2") == ["req-3", "req-4"]
    assert ids("--key", "k1") == ["req-1", "req-4"]
    assert ids("--outcome", "refused") == ids("--model", "=cmd()") == ["req-3"]


@pytest.mark.parametrize("name", ["usage", "log"])
def test_where_no_ledger_is_kept(name: str, run: Any, tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text("models: {}\n", encoding="utf-8")
    error = run(name, code=1).exception
    assert isinstance(error, HeadraceError) and "no ledger is kept; write `ledger:" in str(error)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--by", "dya"], "did you mean 'day'"),
        (["--since", "1.11.2026"], "write it as 2026-11-01"),
        (["--ledger", "/nowhere/ledger"], "no such file"),
    ],
)
def test_mistakes(arguments: list[str], said: str, run: Any) -> None:
    error = run("usage", *arguments, code=1).exception
    assert isinstance(error, HeadraceError) and said in str(error)


def write_config(path: Path, ledger: str) -> None:
    path.write_text(
        "providers: {a: 'http://127.0.0.1:9/v1'}\naccess: {require_key: false}\n"
        f"models: {{chat: a/m}}\nledger: {ledger}\n",
        encoding="utf-8",
    )


async def be_refused(client: httpx.AsyncClient) -> None:
    body = {"model": "nobody", "messages": []}
    assert (await client.post("/v1/chat/completions", json=body)).status_code == 404


@pytest.mark.process
async def test_a_reload_takes_the_retention_and_says_that_the_file_stays(tmp_path: Path) -> None:
    kept = written(tmp_path / "kept.sqlite3", entry(1, at_s=1e9))
    config = tmp_path / "gateway.yaml"
    write_config(config, "{path: kept.sqlite3, retention_days: null}")
    async with started(config) as process, process.client() as client:
        write_config(config, "{path: other.sqlite3, retention_days: 7}")
        process.signal(signal.SIGHUP)
        await process.has_logged("in effect at the next start only: ledger.path")
        await be_refused(client)
        for _ in range(1000):
            with reading(kept) as connection:
                outcomes = [one.outcome for one in newest(connection, EntryFilter())]
            if outcomes == ["refused"]:
                break
            await asyncio.sleep(0.02)
    assert outcomes == ["refused"] and not (tmp_path / "other.sqlite3").exists()


@pytest.mark.process
async def test_a_gateway_that_is_ended_has_written_all(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    write_config(config, "{path: kept.sqlite3}")
    async with started(config) as process, process.client() as client:
        for _ in range(3):
            await be_refused(client)
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    assert not (tmp_path / "kept.sqlite3-wal").exists(), "all of it is in the one file"
    result = CliRunner().invoke(gateway, ["usage", "--config", str(config), "--json"])
    assert json.loads(result.output)["refused"] == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("notes", "damaged or not an SQLite file"),
        ("no/kept", "create it first"),
        ("new", "valid: 1"),
    ],
)
def test_check_looks_at_the_ledger_and_makes_none(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine" * 1000, encoding="utf-8")
    config = tmp_path / "gateway.yaml"
    write_config(config, f"{{path: {name}}}")
    result = CliRunner().invoke(gateway, ["check", "--config", str(config)])
    assert said in result.output and (result.exit_code == 0) == (name == "new")
    assert not (tmp_path / "new").exists()


def test_two_kinds_of_output(run: Any) -> None:
    assert "exclude each other" in run("usage", "--csv", "--json", code=2).output


def test_the_help_names_what_there_is() -> None:
    assert typing.get_args(Outcome) and set(OUTCOMES) == set(typing.get_args(Outcome))
    by = next(one for one in usage.params if one.name == "by")
    assert ", ".join(GROUPINGS) in getattr(by, "help", "")
