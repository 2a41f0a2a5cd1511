"""`headrace bench mock`: what it prints, what it takes, how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import httpx
import pytest
from click.testing import CliRunner

from headrace.cli.bench.group import bench


def test_it_serves_until_a_signal_and_tells_what_became_of_requests() -> None:
    command = [sys.executable, "-m", "headrace", "bench", "mock", "--port", "0", "--json"]
    command += ["--ttft", "normal:2:1", "--tpot", "1", "--error", "500:0", "--model", "other"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "stream": True}
        reply = httpx.post(f"{told['url']}/v1/chat/completions", json=body, timeout=60)
        process.send_signal(signal.SIGTERM)
        ended = json.loads(process.stdout.readline())
        assert process.wait(60) == 0
    assert told["model"] == "other"
    assert told["url"].startswith("http://127.0.0.1:")
    assert reply.text.count('"content":" ') == 3
    assert ended == {"requests": {"completed": 1}}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--ttft", "soon"], "ttft_ms: 'soon' is not a distribution"),
        (["--error", "429"], "errors: the rate nan of 429 is not in 0 to 1"),
        (["--max-queued", "3"], "max_queued: 3 needs a capacity"),
        (["--host", "203.0.113.7"], "--host 203.0.113.7 --port 8010: cannot listen there"),
    ],
)
def test_wrong_programs_are_refused(given: list[str], told: str) -> None:
    done = CliRunner().invoke(bench, ["mock", *given])
    assert done.exit_code == 1
    assert told in str(done.exception)


def test_its_key_comes_from_the_environment_and_is_not_shown() -> None:
    done = CliRunner().invoke(
        bench, ["mock", "--ttft", "soon"], env={"HEADRACE_MOCK_API_KEY": "sk-hidden"}
    )
    assert "sk-hidden" not in done.output + str(done.exception)
    assert "HEADRACE_MOCK_API_KEY" in CliRunner().invoke(bench, ["mock", "--help"]).output
