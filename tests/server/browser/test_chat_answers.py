"""An answer as the chat page draws it: Markdown, thoughts, tokens by probability, its figures."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from headrace.answer_formats.formats import choose_format
from headrace.engine.messages import Output, Stats, Submit
from tests.server.browser.page import chat_page
from tests.server.conftest import Running
from tests.server.mock_engine import INFO, MockEngine, says

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

Start = Callable[..., Running]
HTML = "<script>window.broken = true</script><img src=x onerror='window.broken = true'>"


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
