"""Rows beside a peer: whether an aim is met, the table, and what is touched for the first time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.beside import Aim, Measured, Row, Session, first_touched, report, verdict
from headrace.bench.against.cases import CASES
from headrace.bench.against.turns import CaseResult


@pytest.mark.parametrize(
    ("aim", "ratio", "share", "most_ratio", "judged"),
    [
        (4.0, 4.0, 0.5, 8.0, "met"),
        (4.0, 3.9, 0.84, 8.0, "missed"),
        (4.0, 3.9, 0.85, 4.6, "met by share"),
        (4.0, 3.9, None, None, "missed"),
        (4.0, 4.1, None, None, "met"),
        # No ratio that this machine allows meets the aim.
        (4.0, 1.5, 0.84, 1.8, "missed by share"),
        (4.0, 1.5, 0.85, 1.8, "met by share"),
        # The largest possible is one of medians; single pairs may lie above it.
        (4.0, 4.2, 0.84, 3.9, "met"),
        ("share", 9.0, 0.84, 12.0, "missed by share"),
        ("share", 0.9, 0.85, 1.1, "met by share"),
        ("share", 9.0, None, None, None),
    ],
)
def test_an_aim_is_met_by_the_ratio_or_by_the_share(
    aim: Aim, ratio: float, share: float | None, most_ratio: float | None, judged: str | None
) -> None:
    assert verdict(aim, ratio, share, most_ratio) == judged


def row(model: str, case: str, ours: float, peer: float, most: float | None) -> Row:
    return Row(
        model, case, CaseResult(case=case, ours=(ours,), peer=(peer,), most_tokens_per_s=most)
    )


def test_the_table_has_a_verdict_for_every_row_with_an_aim() -> None:
    sessions = [
        Measured(
            [row("Q8_0", "decode", 60, 40, 80), row("Q8_0", "streams-8", 500, 100, 900)], ["a"]
        ),
        Measured(
            [row("BF16", "decode", 27, 30, 30), row("BF16", "prefill-512", 70, 40, 100)], ["a"]
        ),
        Measured([row("Q4_0", "prefill-512", 70, 40, 100)], ["b"]),
    ]
    aims: dict[tuple[str, str], Aim] = {
        ("Q8_0", "streams-8"): 4.5, ("BF16", "decode"): "share", ("BF16", "prefill-512"): "share",
        ("Q4_0", "prefill-512"): 4.0,
    }  # fmt: skip
    lines = report("llama.cpp", sessions, aims).splitlines()
    assert lines[0] == (
        "|  | case | headrace, tokens/s | llama.cpp, tokens/s | ratio | largest possible "
        "| of the limit | aim |  |"
    )
    assert lines[2:7] == [
        "| Q8_0 | decode | 60.0 | 40.0 | 1.50 | 2.00 | 75% | - | - |",
        "| Q8_0 | streams-8 | 500.0 | 100.0 | 5.00 | 9.00 | 56% | 4.5 | met |",
        "| BF16 | decode | 27.0 | 30.0 | 0.90 | 1.00 | 90% | 85% of the limit | met by share |",
        "| BF16 | prefill-512 | 70.0 | 40.0 | 1.75 | 2.50 | 70% | 85% of the limit "
        "| missed by share |",
        "| Q4_0 | prefill-512 | 70.0 | 40.0 | 1.75 | 2.50 | 70% | 4.0 | missed by share |",
    ]
    assert lines[7:] == ["", "- a", "- b"]


class FakeBench:
    """`headrace bench against`, whose runs are ever slower: pair by pair and case by case."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        cases = command[command.index("--cases") + 1]
        self.asked.append(cases)
        start = 1000 * len(self.asked)
        results = [
            {"case": case, "ours": [start + 10 * place, start + 10 * place + 1], "peer": [50, 60]}
            for place, case in enumerate(cases.split(","))
        ]
        sides = {"headrace": {}, "peer": {}, "ready_s": {"headrace": 1.0, "peer": 2.0}}
        limit = {
            "bytes_per_s": 1e9, "ops_per_s": 1e9, "attention_ops_per_s": 1e9, "kind": "int8",
        }  # fmt: skip
        found = {**sides, "limits": [limit], "results": results}
        return subprocess.CompletedProcess(command, 0, stdout=json.dumps(found))


def test_a_first_touch_is_the_first_run_of_the_last_case_of_each_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = FakeBench()
    monkeypatch.setattr(subprocess, "run", bench)
    session = Session("peer", [CASES["streams-2"], CASES["streams-32"]], 0.3)
    found = first_touched("Q8_0", Path("model.gguf"), session, [], 2)
    assert bench.asked == ["streams-2,streams-32"] * 2
    (only,) = found.rows
    assert only.name == "streams-32, first touch"
    assert only.result.ours == (1010, 2010)
    assert only.result.peer == (50, 50)
