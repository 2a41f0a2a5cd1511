"""Rows of logits on their way to tokens: each case of both kinds of rows has its time."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks import sampling_rows


def test_every_case_of_both_kinds_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vocabulary as large as that of the model whose logits are widened, which is enough."""
    monkeypatch.setattr(sampling_rows, "VOCABULARY", 8192)
    result = CliRunner().invoke(sampling_rows.main, ["--rows", "2", "--seconds", "0", "--json"])
    assert result.exit_code == 0, result.output
    lines = json.loads(result.stdout)["lines"]
    cases = {
        kind: [line["case"] for line in lines if line["logits"] == kind]
        for kind in ("trained", "flat")
    }
    assert cases["trained"] == cases["flat"]
    assert {"greedy", "all three", "20 log probabilities"} <= set(cases["flat"])
    assert all(0 < line["least_ms"] <= line["median_ms"] for line in lines)
