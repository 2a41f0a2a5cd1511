"""A conversation on the chat page: sent, stopped, tried again, edited, and kept in the tab."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from headrace.config import ServerConfig
from tests.server.browser.page import chat_page
from tests.server.conftest import Running
from tests.server.mock_engine import MockEngine, says
from tests.server.serve_process import Process

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

Start = Callable[..., Running]
GREEDY = '{"temperature": 0}'


@pytest.mark.smoke
async def test_a_conversation_streams_and_stays(served: Process, browser: Any) -> None:
    async with chat_page(browser, served.url) as chat:
        await chat.set_more(GREEDY)
        answer = await chat.say("What does zip do in Python?")
        asked = [{"role": "user", "content": "What does zip do in Python?"}]
        reply = served.post("/v1/chat/completions", messages=asked, temperature=0).json()
        expected = reply["choices"][0]["message"]
        figures = await answer.locator(".took").inner_text()
        usage = reply["usage"]
        for figure in (
            "Tokens/s",
            "TTFT",
            f"Output\n{usage['completion_tokens']}",
            f"Prompt\n{usage['prompt_tokens']}",
            "Cached",
        ):
            assert figure in figures
        limit = "headrace:read_limit_bytes_per_second{"
        is_measured = limit in httpx.get(f"{served.url}/metrics").text
        assert ("MBU" in figures) is is_measured
        await chat.page.reload()
        await chat.messages("Model").wait_for()
        kept = await chat.page.evaluate("JSON.parse(localStorage['headrace-chat'])")
        assert kept["messages"][1]["content"] == expected["content"]
        assert await chat.messages("You").locator(".answer").inner_text() == asked[0]["content"]
        await chat.button("New").click()
        await chat.button("Delete and start").click()
        await chat.page.get_by_role("heading", name="Ask the model something").wait_for()
        assert await chat.page.evaluate(
            "JSON.parse(localStorage['headrace-chat']).messages.length"
        ) == 0  # fmt: skip


async def test_an_answer_is_stopped_and_tried_again(start: Start, browser: Any) -> None:
    engine = MockEngine(says("word " * 40, cut=5, delay_s=0.05))
    server = start(engine)
    async with chat_page(browser, server.url) as chat:
        for stop in (chat.button("Stop").click, lambda: chat.page.keyboard.press("Escape")):
            answer = await chat.say("go on", answered=False)
            await answer.get_by_text("word word").wait_for()
            await stop()
            await answer.get_by_text("stopped").wait_for()
            assert "word" in await answer.locator(".answer").inner_text()
        async with asyncio.timeout(10):
            while len(engine.cancelled) < 2:
                await asyncio.sleep(0.01)
        engine.reply = says("done")
        await chat.button("Try again", chat.messages("Model").last).click()
        await chat.messages("Model").last.get_by_text("done").wait_for()
        assert await chat.messages("Model").count() == 2


async def test_messages_are_edited_sent_again_and_deleted(start: Start, browser: Any) -> None:
    engine = MockEngine(says("abc"))
    server = start(engine)
    async with chat_page(browser, server.url) as chat:
        await chat.say("first")
        await chat.say("second")
        first = chat.messages("You").first
        await first.hover()
        await chat.button("Edit", first).click()
        await first.get_by_label("Text of the message").fill("changed")
        engine.reply = says("xyz")
        await chat.button("Save and resend", first).click()
        await chat.messages("Model").get_by_text("xyz").wait_for()
        assert await chat.messages("You").locator(".answer").all_inner_texts() == ["changed"]
        answer = chat.messages("Model")
        await chat.whole(answer)
        await chat.button("Edit", answer).click()
        await answer.get_by_label("Text of the message").fill("not so")
        await chat.button("Save", answer).click()
        await chat.say("third")
        await chat.button("Raw", chat.messages("Model").last).click()
        raw = json.loads(await chat.page.locator("pre.raw").inner_text())
        assert [m["content"] for m in raw["messages"]] == ["changed", "not so", "third"]
        await chat.button("As curl").click()
        command = shlex.split(await chat.page.locator("pre.raw").inner_text())
        assert command[:3] == ["curl", "-N", f"{server.url}/v1/chat/completions"]
        assert json.loads(command[-1]) == raw
        await chat.page.keyboard.press("Escape")
        await chat.messages("You").first.hover()
        await chat.button("Delete", chat.messages("You").first).click()
        assert await chat.messages("You").locator(".answer").all_inner_texts() == ["third"]


async def test_a_new_conversation_shows_what_can_be_tried(start: Start, browser: Any) -> None:
    server = start(MockEngine(says("grün")))
    async with chat_page(browser, server.url) as chat:
        await chat.page.get_by_text("Context: 0 of").wait_for()
        await chat.button("Colour tokens by probability").click()
        assert await chat.question.input_value() == "What does zip do in Python?"
        await chat.page.keyboard.press("Enter")
        await chat.whole(chat.messages("Model"))
        assert await chat.messages("Model").get_by_role("group", name="Tokens").count() == 1


async def test_a_long_conversation_opens_at_its_end(start: Start, browser: Any) -> None:
    server = start(MockEngine(says("x")))
    turns = [
        {"role": role, "content": f"{role} {n}"}
        for n in range(50)
        for role in ("user", "assistant")
    ]
    async with chat_page(browser, server.url) as chat:
        kept = json.dumps({"messages": turns})
        # From another page: the chat itself keeps what it has when it is left.
        await chat.page.goto(f"{server.url}/docs")
        await chat.page.evaluate("text => { localStorage['headrace-chat'] = text; }", kept)
        await chat.page.goto(f"{server.url}/")
        last = chat.messages("Model").last
        gap = "e => e.scrollHeight - e.scrollTop - e.clientHeight"
        conversation = chat.page.locator("#conversation")
        assert await conversation.evaluate(gap) < 2
        assert await chat.button("Latest message").count() == 0
        await conversation.evaluate("e => { e.scrollTop = 0; }")
        await chat.button("Latest message").click()
        assert await conversation.evaluate(gap) < 2
        assert await last.locator(".answer").inner_text() == "assistant 49"


async def test_a_refusal_is_in_the_words_of_the_server(start: Start, browser: Any) -> None:
    server = start(MockEngine(says("x")))
    async with chat_page(browser, server.url) as chat:
        await chat.page.get_by_label("Temperature").fill("-1")
        answer = await chat.say("hello")
        body = {"messages": [{"role": "user", "content": "hello"}], "temperature": -1}
        error = server.post("/v1/chat/completions", body).json()["error"]
        problem = await answer.get_by_role("alert").inner_text()
        assert problem.startswith(error["message"])
        assert "field temperature" in problem
        await chat.button("Raw", answer).click()
        await chat.button("Response").click()
        shown = json.loads(await chat.page.locator("pre.raw").inner_text())
        assert shown["error"]["message"] == error["message"]
        await chat.page.keyboard.press("Escape")
        await chat.page.get_by_label("Temperature").fill("")
        await chat.button("Try again", answer).click()
        await chat.messages("Model").locator(".answer").get_by_text("x").wait_for()


async def test_a_key_is_requested_and_stays_in_the_tab(start: Start, browser: Any) -> None:
    server = start(MockEngine(says("open")), config=ServerConfig(api_key=("sesame",)))
    async with chat_page(browser, server.url) as chat:
        await chat.page.locator("#composer .status.bad").wait_for()
        assert await chat.page.evaluate("document.activeElement.id") == "key"
        await chat.page.keyboard.type("sesame")
        await chat.page.keyboard.press("Enter")
        await chat.page.get_by_text("Context: 0 of").wait_for()
        answer = await chat.say("hello")
        assert await answer.locator(".answer").inner_text() == "open"
        await chat.button("Raw", answer).click()
        await chat.button("As curl").click()
        command = await chat.page.locator("pre.raw").inner_text()
        assert "$HEADRACE_API_KEY" in command and "sesame" not in command
        stored = await chat.page.evaluate("JSON.stringify([{...localStorage}, document.cookie])")
        assert "sesame" not in stored


async def test_a_page_waits_for_its_model(start: Start, browser: Any) -> None:
    server = start(MockEngine(says("x")), loaded=False)
    async with chat_page(browser, server.url) as chat:
        problem = server.client.get("/v1/models").json()["error"]["message"]
        await chat.page.locator("#composer .status").get_by_text(problem[:30]).wait_for()


async def test_an_edit_outlasts_the_answer_that_arrives_meanwhile(
    start: Start, browser: Any
) -> None:
    server = start(MockEngine(says("word " * 20, cut=5, delay_s=0.05)))
    async with chat_page(browser, server.url) as chat:
        answer = await chat.say("first", answered=False)
        question = chat.messages("You")
        await question.hover()
        await chat.button("Edit", question).click()
        text = question.get_by_label("Text of the message")
        await text.fill("second")
        await chat.button("Save only", question).click()
        await chat.page.get_by_text("Stop the answer first.").wait_for()
        await text.focus()
        await chat.whole(answer)
        assert await text.input_value() == "second"
        assert await text.evaluate("element => element === document.activeElement")
        await chat.button("Cancel", question).click()
        assert await question.locator(".answer").inner_text() == "first"
