"""The chat page as people use it, on the model of the package and on an engine that is scripted."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx
import msgspec
import pytest

from headrace.answer_formats.formats import choose_format
from headrace.config import ServerConfig
from headrace.embedded import embedded_model
from headrace.engine.messages import Output, Stats, Submit
from headrace.protocol.openai.chat import REASONING_EFFORTS
from tests.server.browser.page import ChatPage, chat_page
from tests.server.conftest import Running
from tests.server.mock_engine import INFO, MockEngine, says
from tests.server.serve_process import Process, spawn

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

Start = Callable[..., Running]
HTML = "<script>window.broken = true</script><img src=x onerror='window.broken = true'>"
GREEDY = '{"temperature": 0}'


@pytest.fixture(scope="module")
def served() -> Iterator[Process]:
    """`serve` with the model of the package, which may think for long before it answers."""
    process = spawn(embedded_model(), backend="cpu", max_num_seqs=4).wait_ready()
    yield process
    code, err = process.end()
    assert code == 0, err


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


async def test_what_is_written_is_text_and_markdown_is_drawn(start: Start, browser: Any) -> None:
    said = f"# Head\n\n{HTML} **bold** `a*b`\n\n- one\n  1. two\n\n[link](javascript:x)\n\n"
    said += f"```js\n{HTML}"
    info = msgspec.structs.replace(INFO, max_model_len=2048)
    server = start(MockEngine(says(said, cut=7), info=info))
    async with chat_page(browser, server.url) as chat:
        await chat.page.get_by_label("Instructions to the model").fill(HTML)
        answer = await chat.say(HTML)
        await chat.runs_nothing_of_others()
        assert await chat.messages("You").locator(".answer").inner_text() == HTML
        text = await answer.locator(".answer").inner_text()
        assert HTML in text and "[link](javascript:x)" in text
        assert await answer.locator(".answer h3").inner_text() == "Head"
        assert await answer.locator(".answer strong").inner_text() == "bold"
        assert await answer.locator(".answer p code").inner_text() == "a*b"
        assert await answer.locator(".answer ul > li > ol > li").inner_text() == "two"
        assert (await answer.locator(".answer pre").inner_text()).startswith("<script>")
        await chat.page.reload()
        await chat.messages("Model").wait_for()
        await chat.runs_nothing_of_others()


async def test_thoughts_are_open_until_the_answer_begins(start: Start, browser: Any) -> None:
    thoughts = f"{HTML} so "
    said = f"<think>\n{thoughts * 2}</think>\nyes"
    engine = MockEngine(says(said, cut=2, delay_s=0.02))
    server = start(engine, answer_format=choose_format("<think>"))
    async with chat_page(browser, server.url) as chat:
        answer = await chat.say("think", answered=False)
        thought = answer.locator("details.thought")
        await thought.locator("div").get_by_text(thoughts.strip()).wait_for()
        await chat.whole(answer)
        assert await answer.locator(".answer").inner_text() == "yes"
        assert await thought.get_attribute("open") is None
        await thought.locator("summary").click()
        assert (await thought.locator("div").inner_text()).strip() == (thoughts * 2).strip()
        assert "Thoughts" in await answer.locator(".took").inner_text()
        await chat.runs_nothing_of_others()


async def drafted(submit: Submit) -> AsyncIterator[Output]:
    yield Output(submit.request_id, [65, 66], draft_tokens=4, accepted_tokens=1)
    yield Output(submit.request_id, [67], finish_reason="stop", draft_tokens=7, accepted_tokens=5)


async def test_guesses_that_came_are_counted_where_there_were_any(
    start: Start, browser: Any
) -> None:
    for script, counted in ((drafted, True), (says("abc"), False)):
        server = start(MockEngine(script))
        async with chat_page(browser, server.url) as chat:
            answer = await chat.say("hello")
            took = await answer.locator(".took").inner_text()
            assert ("Drafts" in took) is counted
            assert ("5 of 7" in took) is counted


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


async def test_tokens_have_colours_and_rivals(start: Start, browser: Any) -> None:
    server = start(MockEngine(says("grün")))
    async with chat_page(browser, server.url) as chat:
        part = await chat.open_part("Log probabilities")
        await part.get_by_label("Colour tokens").check()
        await part.get_by_label("Rivals of each token").fill("3")
        answer = await chat.say("x")
        tokens = answer.get_by_role("group", name="Tokens")
        assert await tokens.inner_text() == "grün", "a letter may be cut between tokens"
        await tokens.focus()
        await chat.page.keyboard.press("ArrowRight")
        tip = chat.page.get_by_role("tooltip")
        assert await tip.locator("p .code").inner_text() == "g"
        assert await tip.locator("li").count() == 4, "its own and three rivals"
        assert f"{100 * 2.718281828**-0.103:.1f} %" in await tip.inner_text()
        await chat.page.keyboard.press("Escape")
        await tip.wait_for(state="detached")


async def test_a_token_outside_the_text_is_not_shown_as_text(start: Start, browser: Any) -> None:
    said = "<think>\nso</think>\n\nyes, <|im_end|> is a mark"
    server = start(MockEngine(says(said, cut=3)), answer_format=choose_format("<think>"))
    async with chat_page(browser, server.url) as chat:
        part = await chat.open_part("Log probabilities")
        await part.get_by_label("Colour tokens").check()
        answer = await chat.say("x")
        tokens = answer.get_by_role("group", name="Tokens")
        assert await tokens.inner_text() == "yes, <|im_end|> is a mark", "as it was said"
        await answer.locator(".thought summary").click()
        assert await answer.locator(".thought .tokens").inner_text() == "so"
        others = answer.locator("details.apart")
        marks = len("<think>\n</think>\n\n") + 1
        await others.get_by_text(f"{marks} tokens outside the text").click()
        spans = await others.locator(".token").all_inner_texts()
        assert len(spans) == marks
        assert spans[-1] not in ("", "k"), "the token that ended the answer has a name"


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


async def test_a_new_conversation_shows_what_can_be_tried(start: Start, browser: Any) -> None:
    server = start(MockEngine(says("grün")))
    async with chat_page(browser, server.url) as chat:
        await chat.page.get_by_text("Context: 0 of").wait_for()
        await chat.button("Colour tokens by probability").click()
        assert await chat.question.input_value() == "What does zip do in Python?"
        await chat.page.keyboard.press("Enter")
        await chat.whole(chat.messages("Model"))
        assert await chat.messages("Model").get_by_role("group", name="Tokens").count() == 1


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


async def test_figures_stay_in_their_places_while_an_answer_arrives(
    start: Start, browser: Any
) -> None:
    server = start(MockEngine(says("word " * 30, cut=4, delay_s=0.02)))
    async with chat_page(browser, server.url) as chat:
        answer = await chat.say("go on", answered=False)
        places = "e => [...e.children].slice(0, 5).map((d) => [d.children[0].innerText, "
        places += "d.offsetLeft])"
        took = answer.locator(".took")
        await took.get_by_text("Tokens/s").wait_for()
        seen = []
        while await answer.get_attribute("aria-busy") == "true":
            seen.append(await took.evaluate(places))
        assert len(seen) > 3
        assert all(places == seen[0] for places in seen)
        assert [name for name, _ in seen[0]] == ["Tokens/s", "TTFT", "Output", "Prompt", "Cached"]


async def test_mbu_is_of_the_steps_of_an_answer(start: Start, browser: Any) -> None:
    info = msgspec.structs.replace(INFO, read_limit_bytes_per_s=1e9)
    before = Stats(busy_s=100.0, moved_bytes=10**11)
    engine = MockEngine(says("abc"), info=info, stats=before)
    answer_abc = engine.reply

    async def reply(submit: Submit) -> AsyncIterator[Output]:
        async for output in answer_abc(submit):
            now = engine.stats
            engine.stats = msgspec.structs.replace(
                now, busy_s=now.busy_s + 0.1, moved_bytes=now.moved_bytes + 25_000_000
            )
            yield output

    engine.reply = reply
    async with chat_page(browser, start(engine).url) as chat:
        answer = await chat.say("x")
        assert "MBU\n25 %" in await answer.locator(".took").inner_text()


MARKDOWN = {
    "a **b *c* d** e": "<p>a <strong>b <em>c</em> d</strong> e</p>",
    "*a **b** c*": "<p><em>a <strong>b</strong> c</em></p>",
    "2 * 3 * 4, snake_case_name, __init__": "<p>2 * 3 * 4, snake_case_name, __init__</p>",
    "**open and `so": "<p>**open and `so</p>",
    "``a`b`` \\*no\\*": "<p><code>a`b</code> *no*</p>",
    "- a\n  - b\n\n  c\n- d": "<ul><li>a<ul><li>b</li></ul><p>c</p></li><li>d</li></ul>",
    "3. x\n4. y": '<ol start="3"><li>x</li><li>y</li></ol>',
    "> q\n> - i\n\n***": "<blockquote><p>q</p><ul><li>i</li></ul></blockquote><hr>",
    "a | b\n- | -\n1 | *2*": '<div class="scroll"><table><thead><tr><th>a</th><th>b</th></tr>'
    "</thead><tbody><tr><td>1</td><td><em>2</em></td></tr></tbody></table></div>",
    "|a|b|\n|:-:|-:|\n|1|2|": '<div class="scroll"><table><thead><tr><th class="center">a</th>'
    '<th class="end">b</th></tr></thead><tbody><tr><td class="center">1</td><td class="end">2</td>'
    "</tr></tbody></table></div>",
    "![i](http://x/y.png) <b>": "<p>![i](http://x/y.png) &lt;b&gt;</p>",
}
HOSTILE = ("*", "`", "> ", "- ", "_a", "*a ", "~~a ", "|-", "#", "\\", "``` ", "\n", "1. ", "[(")
DRAW = """async (texts) => {
  const { MarkdownView } = await import("/page/shared/markdown.js");
  return texts.map((text) => {
    const element = document.createElement("div");
    const started = performance.now();
    new MarkdownView(element).show(text);
    return [element.innerHTML, performance.now() - started];
  });
}"""


async def test_markdown_becomes_elements_in_linear_time(start: Start, browser: Any) -> None:
    async with chat_page(browser, start(MockEngine(says("x"))).url) as chat:
        drawn = await chat.page.evaluate(DRAW, [*MARKDOWN])
        assert dict(zip(MARKDOWN, (html for html, _ in drawn), strict=True)) == MARKDOWN
        # Where time grew with the square of the length these would take minutes.
        hostile = await chat.page.evaluate(DRAW, [mark * 50_000 for mark in HOSTILE])
        assert {mark: ms for mark, (_, ms) in zip(HOSTILE, hostile, strict=True) if ms > 5000} == {}


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
