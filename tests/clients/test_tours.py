"""Clients people use, each by a scripted tour against a running server.

The openai package is part of the test environment. The others pin packages that headrace needs in
other versions, so they live in an environment of their own, `make clients`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.system.conftest import serve  # noqa: F401  (a fixture)

TOURS = Path(__file__).parent / "tours"
ROOT = Path(__file__).resolve().parents[2]
CLIENTS = Path(os.environ.get("HEADRACE_CLIENTS", ROOT / ".venv-clients")) / "bin" / "python"
TIMEOUT_S = 180


def _tour(python: Path | str, name: str, url: str, model: str) -> None:
    environment = os.environ | {"PYTHONPATH": "", "NO_PROXY": "127.0.0.1,localhost"}
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


def test_openai(serve: Callable[..., Any]) -> None:  # noqa: F811
    server = serve(None)
    _tour(sys.executable, "openai", server.url, server.model)


@pytest.mark.parametrize("name", ["openai", "langchain", "llama_index", "litellm"])
def test_with_the_model_that_ships(serve: Callable[..., Any], name: str) -> None:  # noqa: F811
    python = _clients_python()
    server = serve(None)
    _tour(python, name, server.url, server.model)
