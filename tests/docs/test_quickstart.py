"""docs/quickstart.md: what it says is typed, block after block, against the model that ships."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from tests.docs.pages import ROOT, page
from tools.example_outputs import MARK, MAX_LINES, PAGES, with_outputs

BLOCKS = re.findall(r"(<!-- not run[^\n]*\n)?```(\w+)\n(.*?)```", page("quickstart.md"), re.DOTALL)
READY = re.search(r"```\n(headrace serves .*?)\n```", page("quickstart.md"))
TIMEOUT_S = 60


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Reader:
    """Somebody with two terminals: one serves, in the other the rest is typed."""

    def __init__(self, folder: Path) -> None:
        self.port = _free_port()
        self._folder = folder
        scripts = str(Path(sys.executable).parent)
        self._environment = os.environ | {
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            "XDG_STATE_HOME": str(folder),
        }
        self._server: subprocess.Popen[str] | None = None

    def serve(self, script: str) -> str:
        """Run a block whose last command serves; the line it prints when it is ready."""
        script = re.sub(
            r"^headrace serve", f"exec headrace serve --port {self.port}", script, flags=re.M
        )
        self._server = subprocess.Popen(
            ["sh", "-ec", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self._folder,
            env=self._environment,
        )
        watchdog = threading.Timer(TIMEOUT_S, self._server.kill)
        watchdog.start()
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        watchdog.cancel()
        return line.strip()

    def stop(self) -> int | None:
        """Ctrl-C where something serves; its exit status."""
        if self._server is None:
            return None
        self._server.send_signal(signal.SIGINT)
        try:
            return self._server.wait(TIMEOUT_S)
        finally:
            self._server.kill()
            self._server = None

    def run(self, language: str, text: str) -> str:
        """What a block prints; it has to succeed."""
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        command = [sys.executable, "-c", text] if language == "python" else ["sh", "-ec", text]
        done = subprocess.run(
            command,
            input="What does `len` do?\n",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=self._folder,
            env=self._environment,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        return done.stdout


@pytest.mark.process
def test_everything_that_is_to_be_typed_works(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("the quick start asks with curl")
    assert READY is not None
    reader = Reader(tmp_path)
    printed: list[str] = []
    try:
        for not_run, language, text in BLOCKS:
            if not_run:
                continue
            if "headrace serve" in text:
                assert reader.stop() in (None, 0)
                line = reader.serve(text)
                shape = re.escape(READY[1]).replace("8000", str(reader.port))
                assert re.fullmatch(shape.replace(r"0\.45", r"[\d.]+"), line), line
            else:
                printed.append(reader.run(language, text))
        models = f"http://127.0.0.1:{reader.port}/v1/models"
        assert httpx.get(models).status_code == 401, "the last server has a key"
    finally:
        code = reader.stop()
    assert code == 0
    curl, openai, chat, generate, held, offline, metrics, key, models_again = printed
    assert '"headrace-base"' in curl
    assert "data: [DONE]" in curl
    assert re.search(r"\d+ tokens$", openai.strip())
    assert chat.strip()
    assert generate.startswith("def read(path):")
    assert [*json.loads(held)] == ["returns"]
    assert len(offline.splitlines()) >= 2
    assert "vllm:generation_tokens_total{" in metrics
    assert not key
    assert '"headrace-base"' in models_again


def test_what_is_not_run_is_what_the_makefile_does() -> None:
    [skipped] = [text for not_run, _, text in BLOCKS if not_run]
    assert skipped.startswith("make venv\n")
    assert Path(sys.executable).with_name("headrace").is_file()


def test_what_examples_print_is_on_the_pages() -> None:
    """`python -m tools.example_outputs` writes it, after the embedded model has changed."""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in PAGES]
    found = [re.findall(rf"{re.escape(MARK)}\n```\n(.*?)```\n", text, re.DOTALL) for text in texts]
    assert [len(outputs) for outputs in found] == [5, 3]
    for output in (output for outputs in found for output in outputs):
        assert 0 < len(output.splitlines()) <= MAX_LINES


@pytest.mark.process
def test_the_readme_runs_without_a_server(tmp_path: Path) -> None:
    """The snippet in process needs nothing that the package lacks."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [snippet] = re.findall(r"```python\n(from headrace import LLM.*?)```", readme, re.DOTALL)
    printed = Reader(tmp_path).run("python", snippet)
    assert printed.startswith("def add(a, b):\n    return a + b\n")
    assert "try:\n    value = int(text)\nexcept" in printed


def test_outputs_are_written_behind_their_programs() -> None:
    text = f"```sh\necho a\n```\n\n```sh\necho b\n```\nSo:\n\n{MARK}\n```\nold\n```\nEnd.\n"
    new = with_outputs(text, {"sh": ["sh", "-ec"]}, dict(os.environ))
    assert new == text.replace("old", "b")
    with pytest.raises(ValueError, match="0 lines of output"):
        with_outputs(text.replace("echo b", "true"), {"sh": ["sh", "-ec"]}, dict(os.environ))
    with pytest.raises(ValueError, match="fence of its own"):
        with_outputs(text.replace("echo b", "echo '```'"), {"sh": ["sh", "-ec"]}, dict(os.environ))
