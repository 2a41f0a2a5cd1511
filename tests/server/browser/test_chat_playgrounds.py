"""The chat page's tools and schemas: examples, answers held to them, calls answered by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from headrace.protocol.openai.chat import REASONING_EFFORTS
from tests.server.browser.page import ChatPage, chat_page
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says
from tests.server.serve_process import Process

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

Start = Callable[..., Running]
GREEDY = '{"temperature": 0}'


async def test_tools_are_played_by_hand(served: Process, browser: Any) -> None:
    async with chat_page(browser, served.url) as chat:
        await chat.set_more(GREEDY)
        part = await chat.open_part("Tools")
        await part.get_by_label("Offer tools to the model").check()
        await part.get_by_label("Tools (JSON)").fill("[{")
        await chat.question.fill("anything")
        await chat.page.keyboard.press("Enter")
        await chat.page.locator("#notes").get_by_text("Tools: ").wait_for()
        assert await chat.page.evaluate("document.activeElement.id") == "tools-text"
        assert await chat.question.input_value() == "anything", "nothing was sent"
        await chat.button("Insert an example", part).click()
        await part.get_by_label("Choice").select_option("required")
        answer = await chat.say("What is the weather in Paris?")
        call = answer.get_by_role("region", name="Call of get_weather")
        arguments = json.loads(await call.locator("pre").inner_text())
        assert [*arguments] == ["city"]
        await part.get_by_label("Choice").select_option("none")
        await call.get_by_label("Result of get_weather").fill('{"degrees": 21}')
        await chat.button("Send the result").click()
        assert await chat.messages("Tool").locator(".answer").inner_text() == '{"degrees": 21}'
        second = chat.messages("Model").nth(1)
        await second.wait_for()
        await chat.whole(second)
        await chat.button("Raw", second).click()
        raw = json.loads(await chat.page.locator("pre.raw").inner_text())
        roles = [message["role"] for message in raw["messages"]]
        assert roles == ["user", "assistant", "tool"]
        [sent] = raw["messages"][1]["tool_calls"]
        assert json.loads(sent["function"]["arguments"]) == arguments
        assert raw["messages"][2]["tool_call_id"] == sent["id"]


async def test_an_answer_follows_a_schema_or_the_schema_is_refused(
    served: Process, browser: Any
) -> None:
    async with chat_page(browser, served.url) as chat:
        await chat.set_more('{"seed": 1}')
        part = await chat.open_part("Answer's schema")
        await part.get_by_label("Answer in JSON of this schema").check()
        schema = part.get_by_label("JSON Schema")
        await schema.fill('{"enum": [{"name": "zip", "pure": true}]}')
        answer = await chat.say("Describe zip.")
        await answer.get_by_text("Fits the schema", exact=True).wait_for()
        shown = json.loads(await answer.locator(".code-block pre").inner_text())
        assert shown == {"name": "zip", "pure": True}
        await schema.fill('{"type": "string", "pattern": "^[a-z]{40}$"}')
        patterned = await chat.say("Letters?")
        words = "Fits the schema, as far as this page reads it (not pattern)"
        await patterned.get_by_text(words, exact=True).wait_for()
        await chat.set_more('{"seed": 1, "max_tokens": 9}')
        cut = await chat.say("And fewer?")
        await cut.get_by_text("The answer was cut before its JSON was whole.").wait_for()
        assert "cut at the token limit" in await cut.inner_text()
        await schema.fill('{"type": "array", "uniqueItems": true}')
        refused = await chat.say("And now?")
        problem = await refused.get_by_role("alert").inner_text()
        assert "'uniqueItems' at #/uniqueItems is not supported" in problem
        assert "HTTP 400 · unsupported_schema · field response_format" in problem


async def test_an_example_is_inserted_and_turned_on_by_one_click(
    served: Process, browser: Any
) -> None:
    async with chat_page(browser, served.url) as chat:
        assert await chat.page.get_by_label("strict").count() == 0
        await chat.set_more('{"seed": 1, "max_tokens": 60}')
        parts = (("Answer's schema", "JSON Schema"), ("Tools", "Tools (JSON)"))
        for title, label in parts:
            part = await chat.open_part(title)
            field = part.get_by_label(label)
            placeholder = json.loads(str(await field.get_attribute("placeholder")))
            await chat.button("Insert an example", part).click()
            assert json.loads(await field.input_value()) == placeholder
            box = part.get_by_role("checkbox").first
            assert await box.is_checked()
            answer = await chat.say("x")
            assert await answer.get_by_role("alert").all_inner_texts() == []
            await chat.button("Raw", answer).click()
            raw = json.loads(await chat.page.locator("pre.raw").inner_text())
            assert placeholder in (
                raw.get("tools"),
                raw.get("response_format", {}).get("json_schema", {}).get("schema"),
            )
            await chat.page.keyboard.press("Escape")
            await box.uncheck()
            await chat.button("New").click()
            await chat.button("Delete and start").click()


async def sent(chat: ChatPage, answer: Any) -> dict[str, Any]:
    """The request of an answer."""
    await chat.button("Raw", answer).click()
    body: dict[str, Any] = json.loads(await chat.page.locator("pre.raw").inner_text())
    await chat.page.keyboard.press("Escape")
    return body


async def test_a_schema_is_answered_at_once_unless_reasoning_is_wanted(
    served: Process, browser: Any
) -> None:
    async with chat_page(browser, served.url) as chat:
        await chat.page.get_by_text("Context: 0 of").wait_for()
        await chat.set_more('{"seed": 1, "max_tokens": 60, "reasoning_effort": "high"}')
        await chat.button("Answer in JSON of a schema").click()
        await chat.page.keyboard.press("Enter")
        answer = chat.messages("Model")
        await chat.whole(answer)
        await answer.get_by_text("Fits the schema", exact=True).wait_for()
        assert (await sent(chat, answer))["thinking_token_budget"] == 0
        part = await chat.open_part("Answer's schema")
        await part.get_by_label("Answer at once").uncheck()
        free = await chat.say("x")
        assert "thinking_token_budget" not in await sent(chat, free)
        await part.get_by_label("Answer at once").check()
        await chat.page.get_by_label("Reasoning tokens").fill("7")
        bounded = await chat.say("x")
        assert (await sent(chat, bounded))["thinking_token_budget"] == 7


async def test_an_answer_that_ends_within_its_thoughts_says_so(
    served: Process, browser: Any
) -> None:
    async with chat_page(browser, served.url) as chat:
        await chat.set_more('{"reasoning_effort": "high", "max_tokens": 6}')
        answer = await chat.say("What does zip do in Python?")
        words = "Length: all tokens went to reasoning. Raise Max tokens, or set Reasoning tokens"
        await answer.get_by_text(words).wait_for()
        part = await chat.open_part("Log probabilities")
        await part.get_by_label("Colour tokens").check()
        coloured = await chat.say("What does zip do in Python?")
        await coloured.get_by_text(words).wait_for()
        await chat.set_more('{"reasoning_effort": "none", "max_tokens": 6}')
        other = await chat.say("What does zip do in Python?")
        assert await other.get_by_text(words).count() == 0


async def test_the_efforts_are_those_of_the_server(start: Start, browser: Any) -> None:
    server = start(MockEngine(says("x")))
    async with chat_page(browser, server.url) as chat:
        choice = chat.page.get_by_label("Reasoning effort")
        options = choice.locator("option")
        values = [await option.get_attribute("value") for option in await options.all()]
        assert values == ["", *REASONING_EFFORTS]
        for effort in REASONING_EFFORTS:
            await choice.select_option(effort)
            answer = await chat.say("x")
            assert await answer.get_by_role("alert").count() == 0, effort
