"""The main job as the README tells it: no model named, an OpenAI client, tokens come."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def _client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)


def test_the_openai_package_streams_from_the_embedded_model(serve: Callable[..., Any]) -> None:
    server = serve(None)
    assert server.model == "headrace-code"
    client = _client(server.url)
    pieces = [
        chunk.choices[0].text
        for chunk in client.completions.create(
            model="headrace-code", prompt="import os\n\ndef ", max_tokens=48, stream=True, seed=1
        )
    ]
    whole = client.completions.create(
        model="headrace-code", prompt="import os\n\ndef ", max_tokens=48, seed=1
    )
    assert len(pieces) > 10
    assert "".join(pieces) == whole.choices[0].text


def test_its_chat_completes_the_last_user_message_verbatim(serve: Callable[..., Any]) -> None:
    server = serve(None)
    prompt = "class Reader:\n    def __init__(self, <b>"
    rendered = httpx.post(
        f"{server.url}/tokenize",
        json={
            "model": server.model,
            "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": prompt}],
        },
    ).json()
    plain = httpx.post(
        f"{server.url}/tokenize", json={"model": server.model, "prompt": prompt}
    ).json()
    assert rendered["tokens"] == plain["tokens"]
    client = _client(server.url)
    chat = client.chat.completions.create(
        model=server.model,
        messages=[{"role": "user", "content": prompt}],
        max_completion_tokens=16,
        temperature=0,
    )
    completion = client.completions.create(
        model=server.model, prompt=prompt, max_tokens=16, temperature=0
    )
    assert chat.choices[0].message.content == completion.choices[0].text


def test_it_has_learnt_something(serve: Callable[..., Any]) -> None:
    """`self` is by far the likeliest first argument of a method, in any model of Python."""
    server = serve(None)
    reply = _client(server.url).completions.create(
        model=server.model,
        prompt='class Reader:\n    """Reads."""\n\n    def read(',
        max_tokens=1,
        temperature=0,
        logprobs=1,
    )
    assert reply.choices[0].text == "self"


@pytest.mark.parametrize("language", ["python", "sh"])
def test_the_snippets_of_the_readme_work(serve: Callable[..., Any], language: str) -> None:
    if language == "sh" and shutil.which("curl") is None:
        pytest.skip("the README's shell example needs curl")
    server = serve(None)
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    [snippet] = [block for block in blocks if "127.0.0.1:8000" in block]
    snippet = snippet.replace("http://127.0.0.1:8000", server.url)
    command = [sys.executable, "-c", snippet] if language == "python" else ["sh", "-c", snippet]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 40
    assert "error" not in done.stdout.splitlines()[0]
