"""The browser that the tests of a module share, each in a context of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio

from headrace.embedded import embedded_model
from tests.chromium import launched
from tests.server.serve_process import Process, spawn


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    """Headless Chromium. Its tests run in the loop of their module, as it does."""
    async with launched() as started:
        yield started


@pytest.fixture(scope="module")
def served() -> Iterator[Process]:
    """`serve` with the model of the package, which may think for long before it answers."""
    process = spawn(embedded_model(), backend="cpu", max_num_seqs=4).wait_ready()
    yield process
    code, err = process.end()
    assert code == 0, err
