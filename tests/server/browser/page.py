"""The chat page of a server that runs, in headless Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.chromium import opened


class ChatPage:
    """The page, as whoever sits before it meets it: by roles, labels and texts."""

    def __init__(self, page: Any) -> None:
        self.page = page

    @property
    def question(self) -> Any:
        return self.page.get_by_role("textbox", name="Message", exact=True)

    def messages(self, who: str) -> Any:
        """Those of "You", "Model" or "Tool"."""
        return self.page.get_by_role("article", name=who)

    def button(self, name: str, within: Any = None) -> Any:
        return (within or self.page).get_by_role("button", name=name, exact=True)

    async def say(self, text: str, *, answered: bool = True) -> Any:
        """Send a message; the answer's element, by default once it is whole."""
        count = await self.messages("Model").count()
        await self.question.fill(text)
        await self.page.keyboard.press("Enter")
        answer = self.messages("Model").nth(count)
        await answer.wait_for()
        if answered:
            await self.whole(answer)
        return answer

    async def whole(self, answer: Any) -> None:
        """Wait until nothing more of an answer arrives."""
        element = await answer.element_handle()
        await self.page.wait_for_function(
            "element => element.getAttribute('aria-busy') === 'false'", arg=element
        )

    async def open_part(self, title: str) -> Any:
        """A section of the settings, unfolded."""
        part = self.page.locator("#settings > details").filter(
            has=self.page.locator("summary", has_text=title)
        )
        if await part.get_attribute("open") is None:
            await part.locator("summary").click()
        return part

    async def set_more(self, json: str) -> None:
        await self.page.get_by_label("More (JSON)").fill(json)

    async def runs_nothing_of_others(self) -> None:
        """Fail where a text has become an element that does something."""
        assert await self.page.evaluate("window.broken") is None
        active = "script, img, iframe, a, object, svg, style, [onclick], [onerror]"
        assert await self.page.locator("#conversation").locator(active).count() == 0


@asynccontextmanager
async def chat_page(browser: Any, url: str, **options: Any) -> AsyncIterator[ChatPage]:
    """The page of the server at `url`, its model known. options: of the browser's context."""
    async with opened(browser, url, **options) as (page, _):
        await page.goto(f"{url}/")
        yield ChatPage(page)
