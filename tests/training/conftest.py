"""One thread for PyTorch, as in training: on a busy machine several wait for each other."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def one_torch_thread() -> None:
    """Where the test's module has imported PyTorch; it is not imported for this."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
