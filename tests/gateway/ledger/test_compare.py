"""Sides of an A/B test beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli.gateway.compare import compare
from headrace.errors import ConfigError
from headrace.gateway.feedback.score import Score
from headrace.gateway.feedback.scores_file import ScoresFile
from headrace.gateway.ledger.compare import SideFigures, compare_sides, two_proportions, wilson
from headrace.gateway.ledger.schema import reading
from headrace.gateway.serving.entry import Entry
from headrace.protocol.neutral.usage import TokenUsage
from tests.gateway.ledger.entries import entry, refused, written


def of(path: Path, *models: str, control: str | None = None) -> dict[str, SideFigures]:
    with reading(path) as connection:
        found = compare_sides(connection, models or ("chat",), control=control)
    return {one.variant: one for one in found}


def given_to(number: int, side: str, **more: Any) -> Entry:
    return entry(number, **{"variant": side, "assigned": side, **more})


def many(failed: dict[str, int], size: int = 100) -> list[Entry]:
    found: list[Entry] = []
    for side, count in failed.items():
        for at in range(size):
            more: dict[str, Any] = {"outcome": "failed", "status": 502} if at < count else {}
            found.append(given_to(len(found), side, total_ms=float(at + 1), **more))
    return found


def test_wilson_and_z_are_those_of_the_books() -> None:
    # Newcombe (1998): 81 of 263 is 0.2553 to 0.3662; 0 of 20 is 0 to 0.1611.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    # z = 2.0 has p = 0.0455: 60 against 40 failures of 100 are z = 2.828, p = 0.00468.
    assert two_proportions(60, 100, 40, 100) == pytest.approx(0.004678, rel=1e-3)
    assert two_proportions(5, 50, 5, 50) == 1.0
    assert two_proportions(0, 50, 0, 50) is None
    assert two_proportions(1, 0, 1, 2) is None


def test_failures_are_of_the_side_a_request_was_given_to(tmp_path: Path) -> None:
    stood_in = entry(900, variant="control", assigned="new")
    gone = given_to(901, "new", outcome="client_gone", status=0)
    no = refused(902, variant="new", assigned="new")
    path = written(
        tmp_path / "l", *many({"control": 10, "new": 29}), stood_in, gone, no, entry(903)
    )
    found = of(path)
    assert list(found) == ["new", "control"], "the side with most requests is the control"
    found = of(path, control="control")
    new = found["new"]
    assert (new.requests, new.failures, new.stood_in) == (101, 30, 1)
    assert new.failure_share == pytest.approx(30 / 101)
    assert new.p_value == pytest.approx(two_proportions(30, 101, 10, 100))
    assert new.p_value is not None and new.p_value < 0.01
    control = found["control"]
    assert control.p_value is None and control.failures == 10
    assert (control.total_ms_p50, control.total_ms_p95) == (55.0, 96.0)
    with pytest.raises(ConfigError, match="no request was assigned to variant"):
        of(path, control="x")
    assert of(path, "other") == {}


def test_cost_is_with_what_was_paid_besides_and_tokens_are_the_answers_own(tmp_path: Path) -> None:
    hedge = given_to(
        2, "new", purpose="hedge", parent="req-1", cost_nusd=500, outcome="client_gone",
        usage=TokenUsage(input_tokens=7),
    )  # fmt: skip
    cached = given_to(3, "new", cache="hit", cost_nusd=0)
    unknown = given_to(4, "new", cost_nusd=None)
    path = written(tmp_path / "l", given_to(1, "new", cost_nusd=18_000), hedge, cached, unknown)
    new = of(path)["new"]
    assert (new.requests, new.cost_nusd, new.unknown_cost) == (3, 18_500, 1)
    assert (new.input_tokens, new.output_tokens) == (24, 6)


def test_aliases_and_suffixes_are_the_model(tmp_path: Path) -> None:
    path = written(
        tmp_path / "l",
        given_to(1, "a"),
        given_to(2, "a", model="chat:floor"),
        given_to(3, "a", model="talk"),
        given_to(4, "a", model="chatter"),
    )
    assert of(path)["a"].requests == 2
    assert of(path, "chat", "talk")["a"].requests == 3


def test_scores_of_feedback_are_told_by_side(tmp_path: Path) -> None:
    path = written(tmp_path / "l", given_to(1, "a"), given_to(2, "b"), given_to(3, "b"))
    file = ScoresFile(path)
    for number, variant, value in ((1, "a", 0.0), (2, "b", 1.0), (3, "b", 0.0)):
        score = Score(
            request_id=f"req-{number}", name="quality", key="", score=value, comment="",
            model="chat", target="a/m", variant=variant, at_ms=1_793_491_200_000, given_ms=1,
        )  # fmt: skip
        file.keep(score, None)
    ran = CliRunner().invoke(compare, ["chat", "--ledger", str(path), "--json"])
    assert ran.exit_code == 0, ran.output
    told = {one["variant"]: one["scores"] for one in map(json.loads, ran.output.splitlines())}
    assert told["a"]["quality"]["mean"] == 0.0
    assert told["b"]["quality"]["count"] == 2 and told["b"]["quality"]["mean"] == 0.5
    ran = CliRunner().invoke(compare, ["chat", "--ledger", str(path)])
    assert "b: quality 0.5 of 2, 95 %: " in ran.output


def test_the_command(tmp_path: Path) -> None:
    path = written(tmp_path / "l", *many({"control": 10, "new": 30}))
    config = tmp_path / "gateway.yaml"
    config.write_text(
        "providers: {a: http://127.0.0.1:9}\n"
        "models:\n  chat:\n    variants:\n"
        "      new: {weight: 1, targets: [a/x]}\n      control: {weight: 9, targets: [a/y]}\n"
        "aliases: {talk: chat}\nledger: {path: l}\n"
    )
    ran = CliRunner().invoke(compare, ["talk", "--config", str(config), "--json"])
    assert ran.exit_code == 0, ran.output
    first, second = (json.loads(line) for line in ran.output.splitlines())
    assert first["variant"] == "new" and first["p_value"] is None, "the first of the file"
    assert second["p_value"] < 0.001 and second["cost_usd_per_request"] == pytest.approx(1.8e-5)
    ran = CliRunner().invoke(compare, ["chat", "--ledger", str(path), "--control", "control"])
    assert ran.exit_code == 0, ran.output
    assert "new: more failures than control (p = 0.000" in ran.output
    ran = CliRunner().invoke(compare, ["none", "--ledger", str(path)])
    assert "no request of none was assigned to a variant" in ran.output
