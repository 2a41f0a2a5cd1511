"""headrace-moe, the model with experts of the repository: generated from, served, chatted with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from headrace import LLM, SamplingParams
from tests.models.shipped_moe import SHIPPED
from tests.system.conftest import RunningServer, start_server, stop_server

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        not SHIPPED.exists(), reason="models/ is in the repository, in no sdist and no wheel"
    ),
]
PROMPT = "import numpy as np\n\n\ndef normalize(values):\n"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = start_server(SHIPPED)
    yield server
    assert stop_server(server) == 0


def test_it_writes_what_the_library_writes(server: RunningServer) -> None:
    params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    [expected] = LLM(str(SHIPPED), threads=1).generate([PROMPT], params, progress=False)
    body = {"model": server.model, "prompt": PROMPT, "temperature": 0, "max_tokens": 32}
    flags = {"ignore_eos": True, "return_token_ids": True}
    reply = httpx.post(f"{server.url}/v1/completions", json=body | flags, timeout=60).json()
    [choice] = reply["choices"]
    assert choice["token_ids"] == list(expected.token_ids)
    assert choice["text"] == expected.text


def test_it_answers_and_ends_by_itself(server: RunningServer) -> None:
    messages = [{"role": "user", "content": "What does `os.path.join` do?"}]
    body = {"model": server.model, "messages": messages, "temperature": 0, "max_tokens": 200}
    reply = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()
    [choice] = reply["choices"]
    assert choice["finish_reason"] == "stop"
    assert len(choice["message"]["content"].split()) >= 3


def test_generate_writes_the_same_from_the_command_line() -> None:
    command = [sys.executable, "-m", "headrace.cli.main", "generate", str(SHIPPED)]
    command += ["--prompt", PROMPT, "--temperature", "0", "--max-tokens", "16"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    params = SamplingParams(temperature=0, max_tokens=16)
    [expected] = LLM(str(SHIPPED), threads=1).generate([PROMPT], params, progress=False)
    assert expected.text in done.stdout


def test_chat_answers_on_the_command_line() -> None:
    command = [sys.executable, "-m", "headrace.cli.main", "chat", str(SHIPPED)]
    command += ["--temperature", "0", "--max-tokens", "60"]
    done = subprocess.run(
        command, input="What does `len` do?\n", capture_output=True, text=True, timeout=120,
        check=True,
    )  # fmt: skip
    assert len(done.stdout.split()) >= 3
