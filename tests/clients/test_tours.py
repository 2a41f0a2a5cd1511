"""Clients people use, each by a scripted tour against a running server.

The openai, anthropic and ollama packages are part of the test environment. The others pin packages
that headrace needs in other versions, so they live in an environment of their own, `make clients`.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.gateway_process import started
from tests.system.conftest import serve  # noqa: F401  (a fixture)

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


def _tour(python: Path | str, name: str, url: str, model: str) -> None:
    environment = os.environ | {"PYTHONPATH": "", "NO_PROXY": "127.0.0.1,localhost"} | SILENT
    done = subprocess.run(
        [str(python), str(TOURS / f"{name}_tour.py"), url, model],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]


def _clients_python() -> Path:
    if not CLIENTS.is_file():
        pytest.skip(f"{CLIENTS.parent.parent} is not there; make it with `make clients`")
    return CLIENTS


@pytest.mark.smoke
def test_openai(serve: Callable[..., Any]) -> None:  # noqa: F811
    server = serve(None)
    _tour(sys.executable, "openai", server.url, server.model)


@pytest.mark.parametrize("name", ["anthropic", "ollama"])
def test_packages_of_other_apis(serve: Callable[..., Any], name: str) -> None:  # noqa: F811
    server = serve(None)
    _tour(sys.executable, name, server.url, server.model)


@pytest.mark.parametrize("name", ["openai", "langchain", "llama_index", "litellm"])
def test_with_the_model_that_ships(serve: Callable[..., Any], name: str) -> None:  # noqa: F811
    python = _clients_python()
    server = serve(None)
    _tour(python, name, server.url, server.model)


async def test_through_the_gateway(serve: Callable[..., Any], tmp_path: Path) -> None:  # noqa: F811
    """LangChain and LiteLLM's client find in the gateway what they find in OpenAI and Anthropic."""
    python = _clients_python()
    server = serve(None)
    config = tmp_path / "gateway.yaml"
    config.write_text(
        f"providers: {{own: {{kind: headrace-server, base_url: '{server.url}/v1'}}}}\n"
        f"models: {{chat: ['own/{server.model}']}}\n"
        "access: {require_key: false}\n",
        encoding="utf-8",
    )
    async with started(config) as gateway:
        await asyncio.to_thread(_tour, python, "gateway", gateway.url, "chat")
