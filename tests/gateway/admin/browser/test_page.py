"""The page as people use it: it shows the true numbers, and does what its buttons say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.admin.browser.page import HTML, KEY, seen

async_api = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

STORE: dict[str, Any] = {"require_key": True, "store": "gateway.db"}


async def rows(page: Any, selector: str, least: int = 1) -> list[str]:
    """Texts of a table's rows, on one line each, once there are at least so many."""
    lines = page.locator(f"{selector} tbody tr")
    await lines.nth(least - 1).wait_for()
    found: list[str] = await lines.all_inner_texts()
    return [" ".join(one.split()) for one in found]


async def until_shown(act: Callable[[], Awaitable[object]], expected: Any) -> None:
    """Repeat what makes the page ask again until it shows what is written in batches."""
    for _ in range(50):
        await act()
        with contextlib.suppress(async_api.TimeoutError):
            await expected.wait_for(timeout=300)
            return
    raise AssertionError(f"never shown: {expected}")


@pytest.mark.smoke
async def test_only_the_key_opens_it(browser: Any, tmp_path: Path) -> None:
    async with seen(browser, tmp_path) as one:
        page = one.page
        await page.goto(one.url)
        await page.get_by_label("Admin key").fill("wrong")
        await page.keyboard.press("Enter")
        await page.get_by_text("is not the admin key").wait_for()
        assert await page.locator("#nav a").count() == 0
        await one.open()
        assert await page.evaluate("document.cookie") == ""
        assert await page.evaluate("JSON.stringify(localStorage)") == "{}"
        assert KEY not in " ".join(one.asked)
        await page.reload()
        await page.get_by_role("heading", level=1, name="Overview").wait_for()
        await page.get_by_role("button", name="Lock").click()
        await page.get_by_label("Admin key").wait_for()
        assert await page.evaluate("sessionStorage.length") == 0


async def test_without_key_ledger_and_store_it_says_how_to_have_them(
    browser: Any, tmp_path: Path
) -> None:
    bare: dict[str, Any] = {"admin": {"port": 0, "require_key": False}, "ledger": {}}
    async with seen(browser, tmp_path, **bare) as one:
        page = one.page
        await page.goto(one.url)
        await page.get_by_role("heading", name="No ledger is kept").wait_for()
        assert await page.get_by_role("button", name="Lock").count() == 0
        await one.go("Keys and budgets")
        await page.get_by_text("access.store in the gateway's file is missing").wait_for()
        assert await page.get_by_role("button", name="New key").is_disabled()
        await one.go("Live log")
        await one.chat("chat", "hi")
        await page.locator(".log tbody tr").filter(has_text="a/quick").wait_for()


async def test_the_overview_has_the_numbers_of_the_ledger(browser: Any, tmp_path: Path) -> None:
    async with seen(browser, tmp_path) as one:
        page = one.page
        await one.open()
        await page.get_by_text("No requests in this time").wait_for()
        for model, stream in (("chat", False), ("chat", True), ("large", False), ("broken", False)):
            await one.chat(model, "hi", stream=stream)
        tile = page.locator(".tile")
        await until_shown(
            page.get_by_role("button", name="1 hour").click,
            tile.filter(has_text="Requests").get_by_text("4", exact=True),
        )
        texts = [" ".join(text.split()) for text in await tile.all_inner_texts()]
        assert texts[1].startswith("Failed 25 % 1 failed of 4; 0 refused, not counted")
        assert texts[2].startswith("Cost $0.000054 every price known")
        assert texts[3].startswith("Tokens 45 36 in, 9 out")
        assert await rows(page, ".card table") == [
            text for text in await rows(page, ".card table") if text.split()[0] in
            ("chat", "large", "broken")
        ]  # fmt: skip
        assert (await rows(page, ".card table"))[0].startswith("chat 2 0 24 6 $0.000036")
        chart = page.get_by_role("img", name="Requests.")
        await chart.focus()
        await page.keyboard.press("End")
        told = page.locator(".chart").first.locator(".told")
        assert "from providers" in await told.inner_text()
        await page.locator(".chart").first.get_by_text("As a table").click()
        assert sum(int(row.split()[-2]) for row in await rows(page, ".chart:first-child")) == 4


async def test_a_key_is_made_used_counted_and_blocked(browser: Any, tmp_path: Path) -> None:
    async with seen(browser, tmp_path, access=STORE) as one:
        page = one.page
        await one.open("keys")
        await page.get_by_role("button", name="New key").click()
        await page.get_by_label("Label").fill("the bot")
        await page.get_by_label("US dollars").fill("0.0001")
        await page.get_by_role("button", name="Make the key").click()
        key = await page.get_by_role("textbox", name="The key").input_value()
        assert key.startswith("hr-") and await one.chat("chat", "hi", key=key) == 200
        await page.get_by_role("button", name="I have it").click()
        assert key not in await page.content()
        row = page.locator(".keys tbody tr").filter(has_text="the bot")
        await row.get_by_text("$0.000018 used of $0.0001").wait_for()
        await row.get_by_role("button", name="Edit the bot").click()
        form = page.get_by_role("dialog")
        assert await form.get_by_label("US dollars").input_value() == "0.0001"
        await form.get_by_label("US dollars").fill("2")
        await form.get_by_label("Requests per minute").fill("50")
        await form.get_by_label("Label").fill("the bot of search")
        await form.get_by_role("button", name="Save").click()
        await row.get_by_text("$0.000018 used of $2").wait_for()
        await row.get_by_text("of 50").wait_for()
        assert await one.chat("chat", "hi", key=key) == 200, "its secret stays"
        await row.get_by_role("button", name="Edit the bot of search").click()
        assert await form.get_by_label("Requests per minute").input_value() == "50"
        await form.get_by_label("Requests per minute").fill("")
        await page.keyboard.press("Enter")
        await row.get_by_text("of 50").wait_for(state="detached")
        await row.get_by_role("button", name="Block").click()
        await page.get_by_role("dialog").get_by_role("button", name="Block").click()
        await row.get_by_text("Blocked").wait_for()
        async with asyncio.timeout(20):  # workers take up changes about once a second
            while await one.chat("chat", "hi", key=key) != 401:
                await asyncio.sleep(0.1)
        await page.get_by_label("Search keys").fill("nothing of the kind")
        await page.get_by_text("No key matches").wait_for()
        await page.get_by_label("Search keys").fill("BOT")
        await row.get_by_role("button", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await page.get_by_text("No key matches").wait_for()


async def test_a_raised_budget_stays_raised_when_its_key_is_edited(
    browser: Any, tmp_path: Path
) -> None:
    async with seen(browser, tmp_path, access=STORE) as one:
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=one.url, headers=headers, timeout=20) as client:
            raised = {"usd": 2, "raised_to_usd": 5, "raised_until_ms": 4_000_000_000_000}
            wanted = {"label": "bot", "budgets": [raised]}
            assert (await client.post("/api/keys", json=wanted)).status_code == 200
            await one.open("keys")
            row = one.page.locator(".keys tbody tr").filter(has_text="bot")
            await row.get_by_text("of $5").wait_for()
            await row.get_by_role("button", name="Edit bot").click()
            form = one.page.get_by_role("dialog")
            assert await form.get_by_label("US dollars").input_value() == "2"
            await form.get_by_label("Label").fill("bot two")
            await form.get_by_role("button", name="Save").click()
            await row.get_by_text("bot two").wait_for()
            (key,) = (await client.get("/api/keys")).json()["keys"]
        (budget,) = key["meters"]
        assert (budget["amount"], budget["raised_to"]) == (2 * 10**9, 5 * 10**9)
        assert budget["raised_until_ms"] == 4_000_000_000_000


async def test_the_log_has_the_label_of_a_key_made_while_it_is_open(
    browser: Any, tmp_path: Path
) -> None:
    async with seen(browser, tmp_path, access=STORE) as one:
        await one.open("log")
        await one.page.get_by_text("Live", exact=True).wait_for()
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=one.url, headers=headers, timeout=20) as client:
            made = (await client.post("/api/keys", json={"label": "nightly"})).json()
        assert await one.chat("chat", "hi", key=made["key"]) == 200
        row = one.page.locator(".log tbody tr").filter(has_text="a/quick")
        await row.get_by_text("nightly", exact=True).wait_for()
        await row.get_by_role("button").click()
        await one.page.get_by_text(f"“nightly” / {made['id']}").wait_for()


async def test_the_log_is_live_searched_and_has_details(browser: Any, tmp_path: Path) -> None:
    async with seen(browser, tmp_path, request_log={"enabled": True}) as one:
        page = one.page
        await one.open("log")
        await page.get_by_text("Live", exact=True).wait_for()
        await one.chat("chat", "hi")
        await page.locator(".log tbody tr").filter(has_text="a/quick").wait_for()
        await page.get_by_role("button", name="Pause").click()
        await one.chat("broken", HTML)
        await page.get_by_role("button", name="Resume (1 new)").click()
        assert len(await rows(page, ".log", 2)) == 2
        await page.get_by_label("Search the log").fill("THE PROVIDER SAYS")
        await page.locator(".log tbody tr").filter(has_text="chat").wait_for(state="detached")
        await page.locator(".log tbody tr button").click()
        drawer = page.get_by_role("dialog")
        await drawer.get_by_text("server, HTTP 500").wait_for()
        assert HTML in await drawer.inner_text(), "what others wrote is shown as text"
        assert await page.evaluate("window.broken") is None
        assert await drawer.locator("b", has_text="bold").count() == 0
        await page.keyboard.press("Escape")
        await drawer.wait_for(state="detached")
        await page.get_by_label("Search the log").fill("no such words")
        await page.get_by_text("No request matches").wait_for()


async def test_what_was_said_is_searched_and_shown_as_text(browser: Any, tmp_path: Path) -> None:
    async with seen(browser, tmp_path, request_log={"enabled": True}) as one:
        page = one.page
        await one.chat("chat", f"a needle {HTML}")
        await one.chat("large", "hay")
        await one.open("log")
        await page.get_by_label("Where to search").select_option("bodies")
        row = page.locator(".log tbody tr")
        search = page.get_by_label("Search the log")

        async def find(text: str) -> None:
            await search.fill("")
            await search.fill(text)

        await until_shown(lambda: find("HAY"), row.filter(has_text="large"))
        await until_shown(lambda: find("A NEEDLE"), row.filter(has_text="chat"))
        await row.filter(has_text="large").wait_for(state="detached")
        await row.filter(has_text="chat").locator("button").click()
        drawer = page.get_by_role("dialog")
        await drawer.locator("pre", has_text="a needle").wait_for()
        assert HTML in await drawer.inner_text()
        assert await page.evaluate("window.broken") is None


async def test_a_target_is_taken_out_and_put_back(browser: Any, tmp_path: Path) -> None:
    async with seen(browser, tmp_path) as one:
        page = one.page
        await one.open("routes")
        model = page.get_by_role("region", name="chat", exact=True)
        await model.get_by_text("In use").wait_for()
        await model.get_by_role("button", name="Take a/quick out").click()
        await page.get_by_role("dialog").get_by_role("button", name="Take out").click()
        await model.get_by_text("Taken out by hand").wait_for()
        assert await one.chat("chat", "hi") == 503
        await page.get_by_role("button", name="Explain").click()
        await page.get_by_text("an administrator took it out").wait_for()
        await model.get_by_role("button", name="Put a/quick back").click()
        await model.get_by_text("In use").wait_for()
        assert await one.chat("chat", "hi") == 200


async def test_two_models_answer_side_by_side(browser: Any, tmp_path: Path) -> None:
    async with seen(browser, tmp_path) as one:
        page = one.page
        one.turns.slow = True
        await one.open("playground")
        await page.locator(".chip").nth(1).wait_for()
        await page.get_by_label("Message 1", exact=True).fill(HTML)
        await page.get_by_role("button", name="Send").click()
        chat, large = (page.get_by_role("region", name=name) for name in ("chat", "large"))
        for model in ("quick", "slow"):
            await _let(one.turns.let, model)
        await chat.get_by_text("first").wait_for()
        await large.get_by_text("first").wait_for()
        assert "second" not in await chat.inner_text(), "each word is shown as it comes"
        for _ in range(2):
            await _let(one.turns.let, "quick")
        await chat.get_by_text("$0.000018").wait_for()
        assert await large.get_by_text("second").count() == 0, "nobody waits for the other"
        assert f"first second {HTML}" in await chat.inner_text()
        assert await page.evaluate("window.broken") is None
        await page.get_by_role("button", name="Stop").click()
        await large.get_by_text("Stopped.").wait_for()
        await one.go("Live log")
        told = await rows(page, ".log", 2)
        assert any("Client left" in row and "a/slow" in row and "admin" in row for row in told)


async def _let(let: dict[str, Any], model: str) -> None:
    import asyncio

    async with asyncio.timeout(10):
        while model not in let:
            await asyncio.sleep(0.01)
    let[model].release()


async def test_a_bad_file_is_told_and_changes_nothing(browser: Any, tmp_path: Path) -> None:
    async with seen(browser, tmp_path) as one:
        page = one.page
        await one.open("settings")
        written = one.written()
        one.write({**written, "modles": {}})
        button = page.get_by_role("button", name="Reload the file")
        await button.click()
        await page.get_by_text("The file is not valid").wait_for()
        assert "modles" in await page.get_by_role("alert").inner_text()
        assert await one.chat("chat", "hi") == 200
        more = {"new": {"targets": ["a/quick"]}}
        one.write({**written, "models": {**written["models"], **more}})
        await button.click()
        await page.get_by_text("models.new").wait_for()
        assert await one.chat("new", "hi") == 200
        await one.go("Routes")
        await page.get_by_role("region", name="new").wait_for()


async def test_it_can_be_read_on_a_telephone(browser: Any, tmp_path: Path) -> None:
    async with seen(browser, tmp_path) as one:
        page = one.page
        await page.set_viewport_size({"width": 400, "height": 800})
        await one.open()
        await one.chat("chat", "hi")
        for title in (
            "Keys and budgets",
            "Live log",
            "Routes",
            "Playground",
            "Settings",
            "Overview",
        ):
            await one.go(title)
            await page.wait_for_timeout(100)
            width = await page.evaluate("document.documentElement.scrollWidth")
            assert width <= 400, title
