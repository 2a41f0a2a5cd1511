"""What a chat is made of: texts read, conversations kept, parameters set, figures told."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import LLM
from headrace.cli.chat import settings as chat_settings
from headrace.cli.chat.answer import Answer, receive
from headrace.cli.chat.commands import COMMANDS
from headrace.cli.chat.conversation import (
    Conversation,
    Message,
    SavedChat,
    load,
    markdown,
    save,
)
from headrace.cli.chat.input import Entry, entries, history_path
from headrace.cli.chat.model import ChatDelta, LocalModel
from headrace.cli.chat.session import Session
from headrace.cli.chat.settings import effort_of
from headrace.engine.params import SamplingParams as EngineParams
from headrace.errors import ConfigError, HeadraceError
from headrace.offline.params import SamplingParams
from headrace.offline.results import GenerationDelta
from headrace.protocol.openai.chat import REASONING_EFFORTS


def reader(lines: list[str | type[BaseException]], prompts: list[str]) -> Callable[[str], str]:
    given_lines = iter(lines)

    def read(prompt: str) -> str:
        prompts.append(prompt)
        line = next(given_lines, EOFError)
        if isinstance(line, str):
            return line
        raise line

    return read


def read_all(*lines: str | type[BaseException]) -> list[Entry]:
    return list(entries(reader(list(lines), [])))


def test_lines_and_texts_of_many_lines() -> None:
    assert read_all("one", "  two ", "", "  ") == [Entry("one"), Entry("two")]
    assert read_all("a \\", "b\\", "c", "d") == [Entry("a \nb\nc"), Entry("d")]
    assert read_all("ends in \\\\", "x") == [Entry("ends in \\\\"), Entry("x")]
    assert read_all("open \\") == [Entry("open")], "the end of input ends a text"
    block = ['"""def f():', "    return 1", "", '"""', "after"]
    assert read_all(*block) == [Entry("def f():\n    return 1", is_block=True), Entry("after")]
    assert read_all('"""/clear"""') == [Entry("/clear", is_block=True)]
    assert read_all('"""', "a", 'b"""  ') == [Entry("a\nb", is_block=True)]
    assert read_all('"""', "a") == [Entry("a", is_block=True)]
    assert read_all("pasted\nin one") == [Entry("pasted\nin one")]
    assert read_all('"""', '"""', "x") == [Entry("x")]


def test_ctrl_c_drops_what_was_typed_and_goes_on() -> None:
    assert read_all('"""', "half", KeyboardInterrupt, "whole") == [Entry("whole")]


def test_the_prompt_of_a_line_that_goes_on() -> None:
    prompts: list[str] = []
    assert list(entries(reader(["a\\", "b"], prompts), prompt="> "))
    assert prompts == ["> ", ". ", "> "]
    prompts = []
    assert list(entries(reader(["a\\", "b"], prompts), prompt=""))
    assert prompts == ["", "", ""]


@given(text=st.text(st.characters(exclude_characters='\r"', exclude_categories=["Cs"])))
def test_a_block_holds_any_text(text: str) -> None:
    lines = text.split("\n")
    found = read_all('"""', *lines, '"""')
    assert found == ([Entry(text.strip("\n"), is_block=True)] if text.strip() else [])


def test_where_the_history_is() -> None:
    assert history_path({"XDG_STATE_HOME": "/s"}) == Path("/s/headrace/chat_history")
    home = Path("/h/.local/state/headrace/chat_history")
    assert history_path({"HOME": "/h"}) == home
    assert history_path({"HOME": "/h", "XDG_STATE_HOME": "relative"}) == home


def exchanges(*questions: str, system: str = "") -> Conversation:
    conversation = Conversation(system)
    for question in questions:
        conversation.keep([Message("user", question), Message("assistant", question.upper())])
    return conversation


def test_a_conversation_is_undone_cleared_and_given_a_system_message() -> None:
    one = exchanges("a", "b", system="be brief")
    assert [message.role for message in one.messages] == ["system", *["user", "assistant"] * 2]
    assert one.undo() == "b"
    assert one.messages[-1] == Message("assistant", "A")
    one.set_system("be long")
    assert [message.content for message in one.messages] == ["be long", "a", "A"]
    one.set_system("")
    assert [message.content for message in one.messages] == ["a", "A"]
    one.set_system("again")
    one.clear()
    assert one.messages == [Message("system", "again")]
    assert one.undo() is None


def test_a_saved_conversation_comes_back(tmp_path: Path) -> None:
    chat = SavedChat(
        messages=exchanges("é\n```x```", system="s").messages,
        model="m",
        settings={"temperature": 0.2, "max_tokens": 5},
        stop=["\n\n"],
        schema={"type": "object"},
        tools=[{"type": "function", "function": {"name": "now"}}],
        effort="low",
    )
    path = tmp_path / "chat.json"
    save(path, chat)
    assert load(path) == chat
    assert list(tmp_path.iterdir()) == [path]
    assert "é" in path.read_text()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="cannot be written"):
        save(tmp_path / "absent" / "chat.json", chat)
    assert path.read_bytes() == before


def test_markdown_keeps_its_outline(tmp_path: Path) -> None:
    chat = SavedChat(messages=[Message("user", "# big\n```\n# code\n```")], model="m")
    save(tmp_path / "chat.MD", chat)
    assert (tmp_path / "chat.MD").read_text() == markdown(chat)
    assert markdown(chat) == "# Conversation with m\n\n## User\n\n### big\n```\n# code\n```\n"
    with pytest.raises(ConfigError, match="not a conversation that /save wrote"):
        load(tmp_path / "chat.MD")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("[]", "not a conversation"),
        ('{"messages": [{"role": "wizard", "content": ""}]}', "wizard"),
        ('{"messages": [{"role": "user", "content": 3}]}', "content"),
        ('{"messages": [{"role": "user", "content": "", "x": 1}]}', "x"),
        (
            '{"messages": [{"role": "user", "content": ""}, {"role": "system", "content": ""}]}',
            "only the first",
        ),
        (
            '{"messages": [{"role": "tool", "content": "7", "tool_call_id": "a"}]}',
            r"messages\[0\] is the result of 'a', which is not the id of an earlier call",
        ),
        ("{", "not a conversation"),
    ],
)
def test_files_that_are_no_conversation(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=problem):
        load(path)
    with pytest.raises(ConfigError, match="regular file"):
        load(Path("/dev/zero"))
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "absent")


def test_parameters_are_set_within_their_ranges() -> None:
    params = chat_settings.DEFAULT
    for name in chat_settings.NAMES:
        low, high = chat_settings.LIMITS[name]
        for value in (low, high):
            kind = type(getattr(EngineParams(seed=0, max_tokens=1), name, 0))
            told = chat_settings.changed(params, name, repr(kind(value)))
            assert getattr(told, name) == value
        for outside in (repr(low - 1), "nan", "inf", "", "x", "1e", "True"):
            with pytest.raises(ConfigError, match=name):
                chat_settings.changed(params, name, outside)
        default = chat_settings.changed(told, name, "default")
        assert getattr(default, name) == getattr(chat_settings.DEFAULT, name)
    with pytest.raises(ConfigError, match=r"top_k is '1\.5'; it must be an integer"):
        chat_settings.changed(params, "top_k", "1.5")
    with pytest.raises(ConfigError, match="'choice' cannot be set; temperature, "):
        chat_settings.changed(params, "choice", "1")


def test_the_budget_of_reasoning_is_set_too() -> None:
    params = chat_settings.changed(chat_settings.DEFAULT, "thinking_token_budget", "0")
    assert params.thinking_token_budget == 0
    assert chat_settings.chosen(params) == {"thinking_token_budget": 0}
    with pytest.raises(ConfigError, match="thinking_token_budget is -2; it must be -1 "):
        chat_settings.changed(params, "thinking_token_budget", "-2")


def test_what_is_left_to_the_model_is_shown_with_its_value() -> None:
    params = chat_settings.changed(chat_settings.DEFAULT, "top_k", 5)
    texts = chat_settings.shown(params, {"temperature": 0.6, "top_k": 20})
    assert tuple(texts) == chat_settings.NAMES
    assert texts["temperature"] == "default (0.6)"
    assert texts["top_p"] == "default (1)"
    assert texts["top_k"] == "5"
    assert texts["seed"] == texts["max_tokens"] == "default"
    assert chat_settings.chosen(params) == {"top_k": 5}
    assert chat_settings.changed(params, "top_k", "default") == chat_settings.DEFAULT
    neutral = chat_settings.changed(params, "temperature", "1")
    assert chat_settings.chosen(neutral) == {"top_k": 5, "temperature": 1.0}


def test_settings_of_a_file() -> None:
    base = SamplingParams(temperature=0.5, top_k=3, samplers=("temperature", "top_k"))
    params = chat_settings.of_file({"temperature": 0.2}, base)
    assert (params.temperature, params.top_k) == (0.2, None)
    assert params.samplers == ("temperature", "top_k")
    assert chat_settings.chosen(params) == {"temperature": 0.2}
    with pytest.raises(ConfigError, match="temprature"):
        chat_settings.of_file({"temprature": 1}, base)
    with pytest.raises(ConfigError, match="top_p is 7"):
        chat_settings.of_file({"top_p": 7}, base)


def test_the_figures_of_an_answer() -> None:
    answer = Answer("x", "length", 1200, 41, 200, 0.5, 2.5, 2048)
    assert answer.figures() == (
        "[prompt 1,200 tokens (200 cached), 2,000 tok/s · answer 41 tokens, 20.0 tok/s · "
        "TTFT 500 ms · context 1,241 of 2,048]"
    )
    assert "TTFT 1.25 s" in answer._replace(ttft_s=1.25).figures()
    assert not answer.is_full
    assert answer._replace(context_tokens=1241).is_full
    assert not answer._replace(context_tokens=1241, finish_reason="stop").is_full
    none = Answer("", "abort", 12, 0, 0, None, 0.1, 2048)
    assert none.figures() == "[prompt 12 tokens · answer 0 tokens · context 12 of 2,048]"
    one = none._replace(prompt_tokens=1)
    assert one.figures() == "[prompt 1 token · answer 0 tokens · context 1 of 2,048]"


def test_ctrl_c_keeps_what_there_is_of_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    closed = []

    def deltas() -> Iterator[ChatDelta]:
        try:
            yield ChatDelta(prompt_tokens=5)
            yield ChatDelta("some", output_tokens=2, cached_tokens=3)
            raise KeyboardInterrupt
        finally:
            closed.append(True)

    clock = iter([0.0, 1.0, 4.0])
    answer = receive(deltas(), context_tokens=9, show=True, clock=lambda: next(clock))
    assert answer == Answer("some", "abort", 5, 2, 3, 1.0, 4.0, 9)
    assert closed
    assert capsys.readouterr().out == "some"


def test_ctrl_c_before_the_first_token_drops_the_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Interrupted:
        def encode_chat(self, _messages: object, **_: object) -> list[int]:
            raise KeyboardInterrupt

        info = SimpleNamespace(max_model_len=9, pool_tokens=9)

    model = LocalModel(cast(LLM, Interrupted()))
    session = Session(model, exchanges("a"), SamplingParams(), read_result=Entry)
    before = session.conversation.messages
    assert session.ask("b") is False
    assert session.conversation.messages == before
    assert "the message was dropped" in capsys.readouterr().err


def test_an_answer_that_failed_is_raised() -> None:
    class Failing:
        info = SimpleNamespace(max_model_len=9, pool_tokens=9)

        def encode_chat(self, _messages: object, **_: object) -> list[int]:
            return [1]

        def stream_chat(self, *_: object, **__: object) -> Iterator[GenerationDelta]:
            yield GenerationDelta("", (), finish_reason="error", error="it broke")

    model = LocalModel(cast(LLM, Failing()))
    with pytest.raises(HeadraceError, match="it broke"):
        receive(
            model.answer([Message("user", "x")], SamplingParams(), stop=()),
            context_tokens=9,
            show=False,
        )


def test_figures_of_which_some_are_unknown() -> None:
    """As of a server that reports no context, or of an answer stopped before its usage came."""
    unknown = Answer("x", "abort", None, 3, 0, 0.5, 1.5, None)
    assert unknown.figures() == "[answer 3 tokens, 2.0 tok/s · TTFT 500 ms]"
    assert not unknown._replace(finish_reason="length", context_tokens=3).is_full
    known = unknown._replace(prompt_tokens=5)
    assert known.figures() == (
        "[prompt 5 tokens, 10 tok/s · answer 3 tokens, 2.0 tok/s · TTFT 500 ms]"
    )


def test_files_of_conversations_are_made_with_the_users_mask(tmp_path: Path) -> None:
    path = tmp_path / "chat.json"
    save(path, SavedChat(messages=[]))
    assert stat.S_IMODE(path.stat().st_mode) & 0o111 == 0


def test_reasoning_is_shown_before_the_answer_and_kept_apart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    deltas = (
        ChatDelta(reasoning=text, output_tokens=1) if thought else ChatDelta(text, output_tokens=1)
        for text, thought in (("a ", True), ("b", True), ("c ", False), ("d", False))
    )
    answer = receive(deltas, context_tokens=9, show=True)
    assert (answer.reasoning, answer.text) == ("a b", "c d")
    assert capsys.readouterr().out == "a b\n\nc d"


@pytest.mark.parametrize(
    ("word", "effort"), [("on", "medium"), ("off", "none"), ("low", "low"), ("default", None)]
)
def test_efforts(word: str, effort: str | None) -> None:
    assert effort_of(word) == effort


@pytest.mark.parametrize("word", REASONING_EFFORTS)
def test_every_effort_of_the_api_is_one_of_the_chat(word: str) -> None:
    assert effort_of(word) == word
    assert word in COMMANDS["think"].help


def test_an_effort_that_there_is_not_is_named() -> None:
    with pytest.raises(
        ConfigError, match="/think much: it must be on, off, default or one of none,"
    ):
        effort_of("much")
