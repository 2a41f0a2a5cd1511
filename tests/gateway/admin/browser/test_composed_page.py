"""Models made of others, sides of an A/B test and feedback, as the page shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.admin.browser.page import HTML, seen
from tests.gateway.admin.test_composed_routes import MODELS

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


async def test_what_is_asked_and_which_side_is_out(browser: Any, tmp_path: Path) -> None:
    models = {
        **MODELS,
        "small": ["a/quick"],
        "strong": ["a/slow"],
        "canary": {
            "variants": {"old": {"weight": 1, "targets": ["a/quick"]},
                         "new": {"weight": 3, "targets": ["a/broken"]}},
            "assign_by": "request", "rollback": {"error_share": 0.5, "window_requests": 5},
        },
    }  # fmt: skip
    more = {"breaker": {"min_attempts": 1000}, "retries": {"attempts": 2, "backoff_s": 0.01}}
    async with seen(browser, tmp_path, models=models, **more) as one:
        page = one.page
        for _ in range(20):
            await one.chat("canary", "hi")
        await one.open("routes")
        careful = page.get_by_role("region", name="careful", exact=True)
        said = await careful.inner_text()
        assert "Asks small -> strong; an answer is accepted if rules hold" in said
        assert "by chance" not in said
        canary = page.get_by_role("region", name="canary", exact=True)
        await canary.get_by_text("variant old, 25 %").wait_for()
        assert "Split by request between 2 variants" in await canary.inner_text()
        await canary.get_by_text("variant new, 75 %").get_by_text("taken out").wait_for()
        body = '{"model": "auto", "messages": [{"role": "user", "content": "prove it"}]}'
        await page.get_by_label("Request (JSON)").fill(body)
        await page.get_by_role("button", name="Explain").click()
        await page.get_by_text("auto: rule 1 (matches) -> strong").wait_for()
        await page.get_by_text("Tried in this order").wait_for()
        await page.get_by_label("Request (JSON)").fill(body.replace("auto", "careful"))
        await page.get_by_role("button", name="Explain").click()
        await page.get_by_text("May be tried, depending on the answers").wait_for()
        asked = await page.locator(".explain ol.candidates li b").all_inner_texts()
        assert asked == ["a/quick", "a/slow"]


async def test_feedback_stands_with_its_request(browser: Any, tmp_path: Path) -> None:
    async with seen(browser, tmp_path) as one:
        async with httpx.AsyncClient(base_url=one.process.url, timeout=20) as client:
            asked = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
            told = await client.post("/v1/chat/completions", json=asked)
            given = {"request_id": told.headers["x-request-id"], "score": 0.5, "comment": HTML}
            assert (await client.post("/v1/feedback", json=given)).status_code == 200
        page = one.page
        await one.open("log")
        row = page.locator(".log tbody tr").filter(has_text="a/quick")
        await row.locator("button").click()
        drawer = page.get_by_role("dialog")
        await drawer.get_by_role("heading", name="Feedback").wait_for()
        assert f"0.5: {HTML}" in await drawer.inner_text()
        assert await page.evaluate("window.broken") is None
