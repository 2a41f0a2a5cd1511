"""From the file's settings to the ledger: what is opened, told and kept of who asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from headrace.gateway.accounts.terms import Terms
from headrace.gateway.assemble import made
from headrace.gateway.ledger.errors import LedgerError
from headrace.gateway.ledger.newest import EntryFilter, newest
from headrace.gateway.ledger.schema import reading
from headrace.gateway.run import ledger_of, surroundings
from headrace.gateway.serving.entry import Entry
from headrace.gateway.settings.read import read_settings
from headrace.gateway.telemetry.telemetry import Telemetry
from tests.gateway.accounts.parts import KEY, accounts_of, hierarchy
from tests.gateway.harness import ask, gateway
from tests.gateway.openai_provider import answers
from tests.gateway.upstream.scripted import served

CHAT = {"model": "a/m", "messages": [{"role": "user", "content": "Hi"}]}


def written_config(folder: Path, origin: Any, ledger: str) -> Path:
    path = folder / "gateway.yaml"
    path.write_text(
        f"providers: {{a: {{base_url: '{origin}/v1', dialect: openai-chat}}}}\n"
        f"access: {{require_key: false}}\nledger: {ledger}\n",
        encoding="utf-8",
    )
    return path


async def test_a_gateway_of_a_file_keeps_its_ledger_and_tells_how_it_stands(tmp_path: Path) -> None:
    async with served(answers()) as provider:
        path = written_config(tmp_path, provider.origin, "{path: kept, retention_days: null}")
        settings = read_settings(path)
        ledger = ledger_of(path, settings)
        assert ledger is not None
        built = made(path, settings, None, surroundings(Telemetry(), ledger))
        assert (await ask(built.app, CHAT)).status == 200
        told = (await ask(built.app, b"", path="/health", method="GET")).json["ledger"]
        assert told["lost"] == 0 and told["error"] == ""
        assert told["written"] + told["waiting"] <= 1, "one is on its way, or written"
        built.close()
        ledger.close()
    with reading(tmp_path / "kept") as connection:
        (one,) = newest(connection, EntryFilter())
    assert (one.model, one.target, one.outcome, one.cost_nusd) == ("a/m", "a/m", "answered", None)


def test_nothing_is_kept_unless_it_is_asked_for(tmp_path: Path) -> None:
    path = written_config(tmp_path, "http://127.0.0.1:9", "{}")
    assert ledger_of(path, read_settings(path)) is None
    assert [one.name for one in tmp_path.iterdir()] == ["gateway.yaml"]


def test_a_file_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine" * 1000, encoding="utf-8")
    path = written_config(tmp_path, "http://127.0.0.1:9", "{path: notes}")
    with pytest.raises(LedgerError, match="nothing was written to it"):
        ledger_of(path, read_settings(path))
    path = written_config(tmp_path, "http://127.0.0.1:9", "{path: kept, retention_days: 0}")
    with pytest.raises(ConfigError, match="retention_days"):
        read_settings(path)


async def test_an_entry_says_whose_account_it_goes_on() -> None:
    entries: list[Entry] = []
    accounts = accounts_of(hierarchy(team=Terms(tags=("beta",)), key=Terms(tags=("ci",))))
    await accounts.start()
    async with served(answers()) as provider:
        origin = f"{provider.origin}/v1"
        config = {"providers": {"a": {"base_url": origin, "dialect": "openai-chat"}}}
        built = gateway(config, entries, accounts=accounts)
        told = await ask(built.app, CHAT, headers={"authorization": f"Bearer {KEY}"})
        assert told.status == 200
        built.close()
    await accounts.close()
    (one,) = entries
    assert (one.organisation, one.team, one.user, one.key) == ("acme", "red", "ann", "k")
    assert set(one.tags) == {"beta", "ci"}
