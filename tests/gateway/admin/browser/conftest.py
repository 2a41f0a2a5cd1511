"""The browser that the tests of a module share, each in a context of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from tests.chromium import launched


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    """Headless Chromium. Its tests run in the loop of their module, as it does."""
    async with launched() as started:
        yield started
