"""`headrace bench against`: headrace beside the mock, whose speed is known."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from headrace.cli.bench.group import bench
from headrace.embedded import embedded_model

MOCK = f"{sys.executable} -m headrace bench mock --port {{port}} --ttft 20 --tpot 50"


@pytest.mark.process
def test_both_are_started_measured_and_ended() -> None:
    command = [sys.executable, "-m", "headrace", "bench", "against", MOCK, str(embedded_model())]
    command += ["--cases", "decode,prefill-512", "--minutes", "0.01", "--seed", "5", "--json"]
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
    ],
)
def test_wrong_usage_is_refused(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(bench, ["against", *arguments])
    assert done.exit_code == 2
    assert message in done.output
