"""Fixtures every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_assets() -> Path:
    """Folder of real models, tokenizers and traces; a test that needs it skips where it is absent.

    HEADRACE_ASSETS names it; otherwise `../shared/assets` beside the repository is looked at.
    """
    named = os.environ.get("HEADRACE_ASSETS")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "assets"
    if not folder.is_dir():
        pytest.skip(f"needs the shared test assets (HEADRACE_ASSETS, looked at {folder})")
    return folder
