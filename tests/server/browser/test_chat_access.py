"""The chat page for everybody: light and dark, narrow windows, the keyboard, names of controls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.browser.page import ChatPage, chat_page
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

Start = Callable[..., Running]


async def test_a_note_covers_nothing_that_is_pressed(start: Start, browser: Any) -> None:
    server = start(MockEngine(says("x")))
    async with chat_page(browser, server.url) as chat:
        part = await chat.open_part("Tools")
        await part.get_by_label("Offer tools to the model").check()
        await part.get_by_label("Tools (JSON)").fill("[{")
        for width in (390, 700, 1400):
            await chat.page.set_viewport_size({"width": width, "height": 800})
            if not await chat.question.is_visible():
                await chat.button("Close").click()
            await chat.question.fill("anything")
            await chat.page.keyboard.press("Enter")
            note = chat.page.locator("#notes").get_by_text("Tools: ").last
            await note.wait_for()
            assert await chat.page.evaluate("document.activeElement.id") == "tools-text"
            if width <= 700:
                await chat.button("Close").click()
            await note.wait_for()
            # Where there is something over it, the browser does not press it.
            await chat.button("Send").click(trial=True, timeout=2000)
            boxes = [await note.bounding_box(), await chat.button("Send").bounding_box()]
            over, send = (box for box in boxes if box is not None)
            assert over["y"] + over["height"] < send["y"], width


async def colours(chat: ChatPage) -> tuple[str, float]:
    """The page's ground, and the least contrast of texts with what is behind them."""
    found: tuple[str, float] = tuple(await chat.page.evaluate(CONTRAST))
    return found


CONTRAST = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (text) => parts(text).slice(0, 3)
    .map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const ground = getComputedStyle(at).backgroundColor;
      if ((parts(ground)[3] ?? 1) === 1) return ground;
    }
    return "rgb(255, 255, 255)";
  };
  const ratios = [...document.querySelectorAll("h1, h2, p, label, summary, button, dt, dd, small")]
    .filter((element) => element.innerText?.trim() && element.checkVisibility())
    .map((element) => [light(getComputedStyle(element).color), light(behind(element))])
    .map((pair) => (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05));
  return [getComputedStyle(document.body).backgroundColor, Math.min(...ratios)];
}"""


async def test_light_and_dark_can_be_read(start: Start, browser: Any) -> None:
    server = start(MockEngine(says("an answer")))
    async with chat_page(browser, server.url) as chat:
        await chat.say("hello")
        grounds = []
        for scheme in ("light", "dark"):
            await chat.page.emulate_media(color_scheme=scheme)
            ground, contrast = await colours(chat)
            assert contrast >= 4.5, scheme
            grounds.append(ground)
        assert grounds[0] != grounds[1]
        choice = chat.page.get_by_label("Colours")
        await choice.select_option("light")
        assert (await colours(chat))[0] == grounds[0], "what is chosen comes before the system's"
        await chat.page.reload()
        await chat.messages("Model").wait_for()
        assert (await colours(chat))[0] == grounds[0]
        await choice.select_option("")
        assert (await colours(chat))[0] == grounds[1]


@pytest.mark.parametrize("width", [360, 768])
async def test_a_narrow_window_needs_no_sideways_scroll(
    start: Start, browser: Any, width: int
) -> None:
    said = f"{'long' * 20}\n\n```\n{'x = 1; ' * 15}\n```"
    server = start(MockEngine(says(said)))
    async with chat_page(browser, server.url, viewport={"width": width, "height": 700}) as chat:
        await chat.say("w" * 100)
        wide = "[document.documentElement, document.getElementById('conversation'), "
        wide += "document.getElementById('settings')].map((e) => e.scrollWidth - e.clientWidth)"
        assert await chat.page.evaluate(wide) == [0, 0, 0]
        await chat.button("Settings").click()
        for title in ("Tools", "Answer's schema", "Log probabilities", "API key"):
            await chat.open_part(title)
        assert await chat.page.evaluate(wide) == [0, 0, 0]
        if width == 360:
            await chat.button("Close").click()
            assert await chat.question.is_visible()


async def test_the_keyboard_is_enough(start: Start, browser: Any) -> None:
    server = start(MockEngine(says("an answer")))
    async with chat_page(browser, server.url) as chat:
        await chat.page.get_by_text("Context: 0 of").wait_for()
        keys = chat.page.keyboard
        assert await chat.page.evaluate("document.activeElement.id") == "question"
        await keys.type("one")
        await keys.press("Shift+Enter")
        await keys.type("two")
        await keys.press("Enter")
        await chat.whole(chat.messages("Model"))
        assert await chat.messages("You").locator(".answer").inner_text() == "one\ntwo"
        assert await chat.page.evaluate("document.activeElement.id") == "question"
        said = await chat.page.locator("#said").inner_text()
        assert said == "The answer is complete: 10 tokens."
        reached: list[str] = []
        while len(reached) < 12 and "Delete" not in reached:
            await keys.press("Shift+Tab")
            reached.append(await chat.page.evaluate("document.activeElement.textContent"))
            focus = "getComputedStyle(document.activeElement).outlineStyle"
            assert await chat.page.evaluate(focus) != "none", reached[-1]
        assert "Delete" in reached
        await keys.press("Enter")
        assert await chat.messages("Model").count() == 0


async def test_every_control_has_a_name(start: Start, browser: Any) -> None:
    server = start(MockEngine(says("an answer")))
    async with chat_page(browser, server.url) as chat:
        await chat.say("hello")
        for title in ("Tools", "Answer's schema", "Log probabilities", "API key"):
            await chat.open_part(title)
        nameless = await chat.page.evaluate(
            "[...document.querySelectorAll('input, select, textarea, button')].filter((e) => "
            "!e.labels?.length && !e.ariaLabel && !e.textContent.trim()).map((e) => e.outerHTML)"
        )
        assert nameless == []
