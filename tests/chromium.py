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
async def launched() -> AsyncIterator[Any]:
    """A Playwright browser. Skips where there is none."""
    async_api = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing: apt-get install chromium")
    async with async_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=list(ARGUMENTS), env={**os.environ}
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def opened(browser: Any, own: str, **options: Any) -> AsyncIterator[tuple[Any, list[str]]]:
    """A Playwright page in a context of its own, and the addresses that it requests.

    A context is a profile: it shares no storage, cookies or cache with those before it. Fails at
    the end where a script failed or where anything was requested from elsewhere. own: how the
    page's own addresses begin. options: of the context.
    """
    context = await browser.new_context(timezone_id="UTC", locale="en-US", **options)
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
