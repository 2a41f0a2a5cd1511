"""The report on a model made of others, and what `explain` makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.gateway.ledger.row import row_of
from headrace.gateway.ledger.schema import COLUMN_NAMES, open_for_writing
from headrace.gateway.serving.entry import Entry
from tests.gateway.harness import ask, gateway
from tests.gateway.serving.composed.models import COST_NUSD, cascade, says, settings, sure
from tests.gateway.upstream.scripted import served

CHAT = {"model": "auto", "messages": [{"role": "user", "content": "What is 2+2?"}]}
REQUESTS = 24


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    """A gateway's file whose ledger has 24 requests: every third was not sure enough."""
    entries: list[Entry] = []
    models = cascade("small", "strong", by="logprobs", threshold=0.7)
    probability = iter([0.5 if at % 3 == 0 else 0.9 for at in range(REQUESTS)])

    async def small(number: int, request: bytes, writer: Any) -> None:
        await sure("Four", next(probability)).answer(number, request, writer)

    async with served(says(small=small, strong="Four.")) as provider:
        config = settings(provider.origin, models)
        built = gateway(config, entries)
        for _ in range(REQUESTS):
            assert (await ask(built.app, CHAT)).status == 200
    connection = open_for_writing(tmp_path / "ledger.sqlite3")
    marks = ", ".join("?" for _ in COLUMN_NAMES)
    connection.executemany(
        f"INSERT INTO requests ({', '.join(COLUMN_NAMES)}) VALUES ({marks})",
        [row_of(one) for one in entries],
    )
    connection.commit()
    connection.close()
    config |= {"ledger": {"path": "ledger.sqlite3"}, "access": {"require_key": False}}
    path = tmp_path / "gateway.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def told(*words: str) -> Any:
    result = CliRunner().invoke(cli, ["gateway", *words])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout) if "--json" in words else result.stdout


async def test_shares_costs_and_the_baseline(file: Path) -> None:
    found = told("stages", "auto", "--config", str(file), "--json")
    small, strong = found["stages"]
    assert (small["model"], small["asked"], small["told"]) == ("small", 24, 16)
    assert (strong["model"], strong["asked"], strong["told"]) == ("strong", 8, 8)
    cost = 24 * COST_NUSD["small"] + 8 * COST_NUSD["strong"]
    assert found["cost_nusd"] == cost == small["cost_nusd"] + strong["cost_nusd"]
    assert found["baseline_nusd"] == 24 * COST_NUSD["strong"]
    assert found["cost_per_request_nusd"] == cost / 24
    assert "(41% of it)" not in told("stages", "auto", "--config", str(file))
    assert "always strong: about" in told("stages", "auto", "--config", str(file))


async def test_explain_takes_what_was_measured(file: Path) -> None:
    found = told("explain", "auto", "--config", str(file), "--json")["expected"]
    first, second = found["paths"]
    assert first["share"] == pytest.approx(16 / 24) and first["share_from"] == "measured"
    assert first["lasts_s"] > 0 and second["lasts_s"] > first["lasts_s"]
    assert second["cost_nusd"] > found["baseline_nusd"] > found["cost_nusd"]
    assert found["notes"] == []


async def test_a_model_with_targets_has_no_stages(file: Path) -> None:
    result = CliRunner().invoke(cli, ["gateway", "stages", "small", "--config", str(file)])
    assert result.exit_code != 0 and "not made of other models" in str(result.exception)
