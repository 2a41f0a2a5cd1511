"""Headless Chromium for tests of pages, which may load nothing but what their own server has."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
TIMEOUT_MS = 15_000


@asynccontextmanager
async def opened(folder: Path, own: str, **options: Any) -> AsyncIterator[tuple[Any, list[str]]]:
    """A Playwright page of a browser of its own, and the addresses that it requests.

    Skips where there is no browser. Fails at the end where a script failed or where anything was
    requested from elsewhere. folder: for the browser's profile. own: how the page's own addresses
    begin. options: of the browser's context.
    """
    async_api = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing: apt-get install chromium")
    async with async_api.async_playwright() as playwright:
        context = await playwright.chromium.launch_persistent_context(
            str(folder / "profile"), executable_path=str(CHROMIUM), args=list(ARGUMENTS),
            env={**os.environ}, timezone_id="UTC", locale="en-US", **options,
        )  # fmt: skip
        context.set_default_timeout(TIMEOUT_MS)
        page = await context.new_page()
        requested: list[str] = []
        failed: list[str] = []
        page.on("request", lambda request: requested.append(request.url))
        page.on("pageerror", lambda error: failed.append(str(error)))
        await page.route(lambda url: not url.startswith(own), lambda route: route.abort())
        try:
            yield page, requested
        finally:
            await context.close()
        assert failed == []
        others = [url for url in requested if not url.startswith((own, "blob:"))]
        assert others == [], "the page needs nothing from elsewhere"
