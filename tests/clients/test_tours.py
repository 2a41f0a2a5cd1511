"""Clients people use, each by a scripted tour against a running server.

The openai, anthropic and ollama packages are part of the test environment. The others pin packages
that headrace needs in other versions, so they live in an environment of their own, `make clients`.
Tours of answers that programs read (`*_answers`) assert on what the model that ships answers: calls
of the right name with arguments that validate, objects of the schema, and streams that add up to
the whole.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.gateway_process import started
from tests.system.conftest import RunningServer

pytestmark = pytest.mark.clients

TOURS = Path(__file__).parent / "tours"
ROOT = Path(__file__).resolve().parents[2]
CLIENTS = Path(os.environ.get("HEADRACE_CLIENTS", ROOT / ".venv-clients")) / "bin" / "python"
TIMEOUT_S = 180
SILENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "ANONYMIZED_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
}
"""What keeps the packages from asking and reporting over the network."""
_ONE_AFTER_ANOTHER = """
import os, runpy, sys
url, model, *paths = sys.argv[1:]
for path in paths:
    runpy.run_path(path)  # imports alone
    if not (child := os.fork()):
        sys.argv = [path, url, model]
        runpy.run_path(path, run_name="__main__")
        sys.exit()
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{path} failed")
"""


def run_tours(python: Path | str, url: str, model: str, *names: str) -> None:
    """Tours of one package, each in a copy of a process that has imported it, which takes longer
    than most of them. A copy each, since packages keep connections of the event loop of a tour."""
    environment = os.environ | {"PYTHONPATH": "", "NO_PROXY": "127.0.0.1,localhost"} | SILENT
    paths = [str(TOURS / f"{name}_tour.py") for name in names]
    done = subprocess.run(
        [str(python), "-c", _ONE_AFTER_ANOTHER, url, model, *paths],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]


def clients_python() -> Path:
    """Python of the environment of clients. Skips where there is none."""
    if not CLIENTS.is_file():
        pytest.skip(f"{CLIENTS.parent.parent} is not there; make it with `make clients`")
    return CLIENTS


@pytest.mark.smoke
def test_openai(server: RunningServer) -> None:
    """The major version that the tests' own environment has; the other clients bring an older."""
    run_tours(sys.executable, server.url, server.model, "openai")


@pytest.mark.parametrize("name", ["openai_answers", "anthropic", "ollama"])
def test_packages_of_the_tests_own_environment(server: RunningServer, name: str) -> None:
    run_tours(sys.executable, server.url, server.model, name)


@pytest.mark.parametrize(
    "names",
    [
        ("openai", "responses"),
        ("langchain", "langchain_answers"),
        ("llama_index", "llama_index_answers"),
        ("litellm", "litellm_answers"),
        ("instructor_answers",),
        ("pydantic_ai",),
        ("agents",),
        ("anthropic",),
        ("ollama",),
    ],
    ids=lambda names: names[0],
)
def test_with_the_model_that_ships(server: RunningServer, names: tuple[str, ...]) -> None:
    run_tours(clients_python(), server.url, server.model, *names)


async def test_through_the_gateway(server: RunningServer, tmp_path: Path) -> None:
    """LangChain and LiteLLM's client find in the gateway what they find in OpenAI and Anthropic."""
    python = clients_python()
    config = tmp_path / "gateway.yaml"
    config.write_text(
        f"providers: {{own: {{kind: headrace-server, base_url: '{server.url}/v1'}}}}\n"
        f"models: {{chat: ['own/{server.model}']}}\n"
        "access: {require_key: false}\n",
        encoding="utf-8",
    )
    async with started(config) as gateway:
        await asyncio.to_thread(run_tours, python, gateway.url, "chat", "gateway")
