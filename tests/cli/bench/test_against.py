"""`headrace bench against`: headrace beside the mock, whose speed is known; what is printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from headrace.bench.against import session
from headrace.bench.against.peer import ServerFacts
from headrace.bench.against.session import Facts
from headrace.bench.against.turns import CaseResult, Comparison
from headrace.cli.bench.group import bench
from headrace.embedded import embedded_model
from headrace.telemetry.machine import Limits

MOCK = f"{sys.executable} -m headrace bench mock --port {{port}} --ttft 20 --tpot 50"


@pytest.mark.process
def test_both_are_started_measured_and_ended() -> None:
    command = [sys.executable, "-m", "headrace", "bench", "against", MOCK, str(embedded_model())]
    command += ["--cases", "decode,prefill-512", "--minutes", "0.1", "--seed", "5", "--json"]
    command += ["--", "--max-num-seqs", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    message = json.loads(done.stdout)
    assert "--max-num-seqs 3" in message["headrace"]["command"]
    assert "bench mock --port" in message["peer"]["command"]
    assert set(message["ready_s"]) == {"peer", "headrace"}
    assert message["seed"] == 5
    decode = message["results"][0]
    # 127 tokens of 50 ms each.
    assert decode["peer"][0] == pytest.approx(20, rel=0.2)
    assert decode["ratios"][0] == pytest.approx(decode["ours"][0] / decode["peer"][0])
    assert decode["largest_possible_ratio"] > 0 and decode["share_of_limit"] > 0
    assert len(message["limits"]) >= 2
    assert all(limit["attention_ops_per_s"] > 0 for limit in message["limits"])
    assert "raise --minutes" in message["results"][1]["why_missing"]


FACTS = Facts(
    ServerFacts(
        url="http://127.0.0.1:1", build="headrace 1", model="m", command="headrace serve m"
    ),
    ServerFacts(url="http://127.0.0.1:2", build="b1", model="m.gguf", slots=8, context=4096),
    {"headrace": 0.5},
)
COMPARISON = Comparison(
    [
        CaseResult(
            case="decode",
            ours=(60, 80, 70),
            peer=(40, 40, 35),
            most_tokens_per_s=100,
            left_out=2,
            why_left_out="the peer: its pace cannot be seen",
        ),
        CaseResult(case="streams-8", ours=(1200,), peer=(300,), why_missing="the peer: it ended"),
        CaseResult(case="streams-32", why_missing="the 60 s were over; raise --minutes"),
    ],
    [Limits(40e9, 2e12, "int8", 5e11), Limits(50e9, 1e12, "int8", 4e11)],
)
ABOVE = """\
headrace: headrace 1, m, ready after 0.50 s
  headrace serve m
peer: b1, m.gguf, 8 slots, context 4,096
this machine, read 2 times: 45.0 [40.0..50.0] GB/s, 1,500 [1,000..2,000] GOPS (products, int8), \
450 [400..500] GOPS (attention); prompts of seed 5
"""
CELLS = [
    ["tokens/s", "pairs", "headrace", "peer", "ratio", "largest possible", "of the limit"],
    ["decode", "3", "70.0 [60.0..80.0]", "40.0 [35.0..40.0]", "2.00 [1.50..2.00]", "2.50", "70%"],
    ["streams-8", "1", "1,200.0", "300.0", "4.00", "", ""],
]


NOTES = [
    "decode: 2 pairs left out: the peer: its pace cannot be seen",
    "streams-8: no pair after 1: the peer: it ended",
    "streams-32: not measured: the 60 s were over; raise --minutes",
]


def printed(
    monkeypatch: pytest.MonkeyPatch, comparison: Comparison, *options: str, facts: Facts = FACTS
) -> Result:
    """What the command prints of a comparison that was made."""
    monkeypatch.setattr(session, "compared", lambda *_: (facts, comparison))
    arguments = ["http://127.0.0.1:2", str(embedded_model()), "--seed", "5", *options]
    return CliRunner().invoke(bench, ["against", *arguments])


def test_the_table_is_printed_between_what_ran_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = printed(monkeypatch, COMPARISON)
    assert done.exit_code == 0, done.output
    above, _, table = done.stdout.partition("\n\n")
    assert above + "\n" == ABOVE
    lines = table.splitlines()
    cells = [re.split(r"\s{2,}", line.strip()) for line in lines[: len(CELLS)]]
    assert cells == [[cell for cell in row if cell] for row in CELLS]
    assert lines[len(CELLS) :] == NOTES
    assert done.stderr == ""


def test_the_table_is_printed_as_markdown(monkeypatch: pytest.MonkeyPatch) -> None:
    table = printed(monkeypatch, COMPARISON, "--markdown").stdout.partition("\n\n")[2]
    head, rule, *rest = table.splitlines()
    rows, notes = rest[: len(CELLS) - 1], rest[len(CELLS) - 1 :]
    assert rule == "|---|---:|---:|---:|---:|---:|---:|"
    assert notes == ["", *(f"- {note}" for note in NOTES)]
    assert [line.split(" | ") for line in (head, *rows)] == [
        [f"| {row[0]}", *row[1:-1], f"{row[-1]} |"] for row in CELLS
    ]


def test_without_any_pair_the_status_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    done = printed(monkeypatch, Comparison(COMPARISON.results[2:], []))
    assert done.exit_code == 1
    assert "no limits: the peer is on another machine" in done.stdout
    assert done.stdout.endswith(f"\n\n{NOTES[-1]}\n")


def test_models_that_differ_are_named_above_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = FACTS._replace(
        ours=ServerFacts(url="http://127.0.0.1:1", model="Qwen3-0.6B-Q8_0", weights="Q8_0"),
        peer=ServerFacts(url="http://127.0.0.1:2", model="/m/Qwen3-1.7B-Q4_K_M.gguf"),
    )
    above = printed(monkeypatch, COMPARISON, facts=facts).stdout.partition("\n\n")[0]
    assert above.splitlines()[-1] == (
        "warning: not the same model, it seems: names, sizes and kinds of weights differ "
        "(headrace: Qwen3-0.6B-Q8_0 (Q8_0); peer: /m/Qwen3-1.7B-Q4_K_M.gguf); the ratio compares "
        "models then, too"
    )
    message = json.loads(printed(monkeypatch, COMPARISON, "--json", facts=facts).stdout)
    assert message["models_differ_in"] == ["names", "sizes", "kinds of weights"]


def test_sizes_of_files_stand_in_the_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = FACTS._replace(
        ours=ServerFacts(
            url="http://127.0.0.1:1", model="m", weights="Q8_0", weight_bytes=4 * 10**8
        ),
        peer=ServerFacts(
            url="http://127.0.0.1:2", model="m", parameters=6 * 10**8, weight_bytes=6 * 10**8
        ),
    )
    above = printed(monkeypatch, COMPARISON, facts=facts).stdout.partition("\n\n")[0]
    assert (
        "bytes of weights differ (headrace: m (Q8_0, 400 MB); peer: m (600 M parameters, 600 MB))"
    ) in above


def test_one_slot_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = FACTS._replace(peer=ServerFacts(url="http://127.0.0.1:2", model="m", slots=1))
    assert "peer: m, 1 slot\n" in printed(monkeypatch, COMPARISON, facts=facts).stdout


def test_rows_that_an_uneven_machine_made_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    uneven = Comparison(
        [
            CaseResult(case="decode", ours=(40, 70), peer=(30, 30)),
            CaseResult(case="streams-8", ours=(30,), peer=(10,), most_tokens_per_s=20),
        ],
        [Limits(rate, 2e12, "int8", 5e11) for rate in (20e9, 40e9)],
    )
    moved = "the machine was not idle, or its speed changed"
    assert printed(monkeypatch, uneven).stdout.splitlines()[-3:] == [
        f"decode: do not rely on this row: runs of headrace differ by a factor of 1.8: {moved}",
        "streams-8: do not rely on this row: its ratio is above the largest possible: the model "
        "lies in the CPU's caches, or the machine's speed changed",
        "do not rely on the last two columns: readings of the memory's bandwidth differ by a "
        f"factor of 2.0: {moved}",
    ]
    message = json.loads(printed(monkeypatch, uneven, "--json").stdout)
    assert [(row["pairs"], len(row["doubts"])) for row in message["results"]] == [(2, 1), (1, 1)]
    assert len(message["doubts"]) == 1


def test_help_says_what_the_time_is_for_and_has_a_peer_that_fits_the_cases() -> None:
    shown = " ".join(CliRunner().invoke(bench, ["against", "--help"]).output.split())
    assert "-c 24576 -np 32 -kvu" in shown
    assert "The first case is always measured, others while time is left." in shown


def test_away_from_a_terminal_no_cell_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = (1.9e12, 2e12, 2.1e12)
    wide = Comparison([CaseResult(case="decode", ours=figures, peer=figures)], [])
    lines = printed(monkeypatch, wide).stdout.partition("\n\n")[2].splitlines()
    assert len(lines) == 2 and len(lines[1]) > 120
    assert lines[1].count("2,000,000,000,000.0 [1,900,000,000,000.0..2,100,000,000,000.0]") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["llama-server -m x.gguf", "m"], "has no {port}"),
        (["llama-server 'x --port {port}", "m"], "close its quotes"),
        (
            ["http://127.0.0.1:1", "m", "--cases", "decode,fast"],
            "not a list of some of prefill-512",
        ),
        (["http://127.0.0.1:notaport", "m"], "URL: 'http://127.0.0.1:notaport' has no valid host"),
        (["http://127.0.0.1:1", "m", "--minutes", "nan"], "nan is not in the range 0<x<=1440"),
        (["http://127.0.0.1:1", "m", "--start-timeout", "nan"], "nan is not in the range x>0"),
        (["http://127.0.0.1:1", "m", "--timeout", "0"], "0 is not in the range"),
        (["http://127.0.0.1:1", "m", "--json", "--markdown"], "give one of them"),
        (["http://127.0.0.1:1", "m", "--", "--port", "5"], "--port behind --"),
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(bench, ["against", *arguments])
    assert done.exit_code == 2
    assert message in done.output
