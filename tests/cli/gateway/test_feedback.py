"""`headrace gateway feedback`: what is printed of scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.gateway.group import gateway
from headrace.gateway.feedback.scores_file import ScoresFile
from headrace.gateway.request_log.sqlite_store import SqliteRecords
from tests.gateway.feedback.test_feedback import score
from tests.gateway.ledger.entries import entry, written
from tests.gateway.request_log.parts import record


def run(folder: Path, *arguments: str, code: int = 0) -> Result:
    config = folder / "gateway.yaml"
    config.write_text("ledger: {path: kept}\n", encoding="utf-8")
    result = CliRunner().invoke(gateway, ["feedback", "--config", str(config), *arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    file = ScoresFile(written(tmp_path / "kept", entry()))
    for number, (value, variant) in enumerate(((1, "a"), (0, "a"), (0.25, "b"), (0.75, "b"))):
        file.keep(score(number, float(value), variant=variant), None)
    file.keep(score(1, 5.0, name="fun", variant="a"), None)
    return tmp_path


def test_a_line_for_each_group_and_name(folder: Path) -> None:
    told = [
        json.loads(line) for line in run(folder, "--by", "variant", "--json").output.splitlines()
    ]
    assert [(one["variant"], one["name"], one["count"], one["mean"]) for one in told] == [
        ("a", "fun", 1, 5.0),
        ("a", "quality", 2, 0.5),
        ("b", "quality", 2, 0.5),
    ]
    assert told[0]["low"] is None
    assert told[2]["low"] == pytest.approx(0.5 - 12.706 * 0.25, abs=1e-3)


def test_a_table_for_people(folder: Path) -> None:
    said = run(folder, "--by", "variant", "--name", "quality").output
    (a,) = [line.split("│") for line in said.splitlines() if "│ a" in line]
    assert [part.strip() for part in a[1:-1]] == ["a", "2", "0.500", "0.095 to 0.905"]


def test_what_there_is_not(tmp_path: Path) -> None:
    written(tmp_path / "kept", entry())
    assert run(tmp_path).output == "there are no scores\n"
    assert "variant" in str(run(tmp_path, "--by", "varient", code=1).exception)


def test_what_was_said_of_an_answer_is_shown_with_it(folder: Path) -> None:
    log = SqliteRecords(folder / "requests.sqlite3")
    log.append([record(7), record(8)])
    log.close()
    ScoresFile(folder / "kept").keep(score(7, 0.5, key="k1", comment="too\nlong"), None)
    run(folder)
    config = str(folder / "gateway.yaml")
    said = CliRunner().invoke(gateway, ["show", "req-7", "--config", config])
    assert said.output.endswith("    feedback: quality 0.5 by k1: too long\n")
    told = CliRunner().invoke(gateway, ["show", "req-7", "--config", config, "--json"])
    found = json.loads(told.output)
    assert found["feedback"][0]["comment"] == "too\nlong" and found["line"] == record(7).line
    other = CliRunner().invoke(gateway, ["show", "req-8", "--config", config])
    assert other.exit_code == 0 and "feedback" not in other.output
