"""pull, list, rm and commands that take a name: as processes, against a hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.config import EngineConfig, ServerConfig
from tests.tiny import write_tiny_gguf, write_tiny_hf
from tests.weights.store.mock_hub import MockHub, running_hub
from tests.weights.store.ollama import MODEL, write_ollama

pytestmark = pytest.mark.process

GREEDY = ("-p", "ab", "--temperature", "0", "--max-tokens", "8", "--threads", "1", "--json")


@pytest.fixture
def hub() -> Iterator[MockHub]:
    with running_hub() as running:
        yield running


class Shell:
    """Runs headrace where the only network is the hub's."""

    def __init__(self, hub: MockHub, folder: Path) -> None:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self.folder = folder
        self.environ = kept | {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(folder / "hf"),
            "OLLAMA_MODELS": str(folder / "ollama"),
            "XDG_CACHE_HOME": str(folder / "xdg"),
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def run(self, *arguments: str, code: int = 0, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "headrace.cli.main", *arguments],
            capture_output=True,
            text=True,
            timeout=120,
            env=self.environ | more,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == code, done.stderr
        return done


@pytest.fixture
def shell(hub: MockHub, tmp_path: Path) -> Shell:
    return Shell(hub, tmp_path)


def test_pulled_then_used_offline_then_removed(hub: MockHub, shell: Shell, tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path / "made")
    hub.add_folder("org/tiny", folder)
    expected = json.loads(shell.run("generate", str(folder), *GREEDY).stdout)["token_ids"]

    pulled = shell.run("pull", "org/tiny")
    assert "fetched model.safetensors (5/5)" in pulled.stderr
    assert pulled.stdout.startswith("org/tiny: 5 files, ")
    assert "nothing had to be fetched" in shell.run("pull", "org/tiny").stdout

    asked = len(hub.requests)
    reply = json.loads(shell.run("generate", "org/tiny", *GREEDY, "--offline").stdout)
    assert reply["token_ids"] == expected
    assert json.loads(shell.run("show", "org/tiny", "--json").stdout)["format"] == "safetensors"
    lines = shell.run("list", "--json").stdout.splitlines()
    [listed] = [model for model in map(json.loads, lines) if model["source"] == "hf"]
    assert (listed["name"], listed["codec"], listed["broken"]) == ("org/tiny", "F32", None)
    assert "org/tiny" in shell.run("list").stdout
    assert len(hub.requests) == asked

    refused = shell.run("rm", "org/tiny", code=2)
    assert "add --yes" in refused.stderr
    removed = json.loads(shell.run("rm", "org/tiny", "--yes", "--json").stdout)
    assert removed["freed_bytes"] == listed["size_bytes"]
    failed = shell.run("generate", "org/tiny", *GREEDY, "--offline", code=1)
    assert "headrace pull org/tiny" in failed.stderr


def test_a_command_fetches_what_it_needs_and_json_tells_of_it(
    hub: MockHub, shell: Shell, tmp_path: Path
) -> None:
    path = write_tiny_gguf(tmp_path / "made", codec="Q8_0")
    hub.add("org/tiny-GGUF", {"tiny-Q8_0.gguf": path.read_bytes()})
    done = shell.run("generate", "org/tiny-GGUF:Q8_0", *GREEDY)
    assert "fetched tiny-Q8_0.gguf (1/1)" in done.stderr
    assert len(json.loads(done.stdout)["token_ids"]) == 8
    lines = shell.run("pull", "org/tiny-GGUF:Q8_0", "--json").stdout.splitlines()
    first, last = map(json.loads, lines)
    assert (first["event"], first["state"], first["file"]) == ("file", "here", "tiny-Q8_0.gguf")
    assert (last["event"], last["fetched_bytes"]) == ("done", 0)
    assert last["total_bytes"] == path.stat().st_size
    assert Path(last["path"]).is_file()


def test_errors_are_one_line_and_tell_no_token(hub: MockHub, shell: Shell) -> None:
    hub.add("org/gated", {"config.json": b"{}", "model.safetensors": b"x"})
    repo = hub.repos["org/gated"]
    repo.gated, repo.token = True, "hf_right"
    failed = shell.run("pull", "org/gated", code=1, HF_TOKEN="hf_verysecret")
    assert failed.stderr.startswith("headrace: org/gated: the repository is gated")
    assert "hf_verysecret" not in failed.stderr + failed.stdout
    assert len(failed.stderr.splitlines()) == 1
    assert "not a model of the hub" in shell.run("pull", "model.gguf", code=1).stderr
    offline = shell.run("pull", "org/gated", code=1, HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE is set" in offline.stderr


def test_a_model_of_ollama_runs_under_its_name(shell: Shell, tmp_path: Path) -> None:
    content = write_tiny_gguf(tmp_path / "made", codec="Q8_0").read_bytes()
    layers = {MODEL: content, "application/vnd.ollama.image.system": b"be brief"}
    write_ollama(tmp_path / "ollama", "tiny", layers, tag="q8")
    done = shell.run("generate", "tiny:q8", *GREEDY)
    assert "system not used" in done.stderr
    assert len(json.loads(done.stdout)["token_ids"]) == 8
    assert "ollama rm tiny:q8" in shell.run("rm", "tiny:q8", "--yes", code=1).stderr


def test_a_server_is_called_as_its_model_was_named(
    hub: MockHub, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add_folder("org/tiny", write_tiny_hf(tmp_path / "made"))
    for name in ("HF_ENDPOINT", "HF_HOME", "NO_PROXY"):
        monkeypatch.setenv(name, shell.environ[name])
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    taken: list[tuple[EngineConfig, ServerConfig]] = []

    def serve(engine: EngineConfig, server: ServerConfig, **options: object) -> int:
        taken.append((engine, server))
        return 0

    monkeypatch.setattr("headrace.server.run.serve", serve)
    for arguments in (["org/tiny"], ["org/tiny", "--served-model-name", "mine"], []):
        result = CliRunner().invoke(cli, ["serve", *arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    (engine, first), (_, second), (embedded, third) = taken
    assert (Path(engine.model) / "config.json").is_file()
    assert first.served_model_name == ("org/tiny",)
    assert second.served_model_name == ("mine",)
    assert (embedded.model, third.served_model_name) == ("", ())


def test_a_path_imports_nothing_of_the_hubs(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path, codec="Q8_0")
    code = (
        "import sys\n"
        "from headrace.cli.obtain import obtain\n"
        "from headrace.config import EngineConfig\n"
        f"print(obtain(EngineConfig(model={str(model)!r})).config.model)\n"
        "print(sorted({'huggingface_hub', 'httpx2', 'numpy', 'rich'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [str(model), "[]"], done.stderr
