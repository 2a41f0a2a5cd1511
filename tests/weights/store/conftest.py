"""A hub on this machine, and an environment whose caches are a test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.weights.store.mock_hub import MockHub, running_hub


@pytest.fixture
def hub() -> Iterator[MockHub]:
    with running_hub() as running:
        yield running


@pytest.fixture
def environ(hub: MockHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Variables for this process's calls and, with PATH, for commands."""
    variables = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "OLLAMA_MODELS": str(tmp_path / "ollama"),
        "NO_PROXY": "127.0.0.1,localhost",
    }
    for name in ("HF_TOKEN", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables
