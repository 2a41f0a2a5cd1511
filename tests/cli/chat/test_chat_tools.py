"""Tools in a chat: calls are shown, their results typed in, and the model goes on with them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.chat.commands import COMMANDS
from headrace.cli.chat.commands import run_command as run_entry
from headrace.cli.chat.conversation import Call, Conversation, Message, load
from headrace.cli.chat.input import Entry
from headrace.cli.chat.model import ChatDelta
from headrace.cli.chat.session import Session
from headrace.cli.chat.tools import read_tools
from headrace.cli.main import cli
from headrace.errors import ConfigError
from headrace.offline.params import SamplingParams

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city now",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
OSLO = Call("get_weather", '{"city": "Oslo"}', "call_1")
BERGEN = Call("get_weather", '{"city": "Bergen"}', "call_2")


class Scripted:
    """A model whose answers are given; it keeps what it is asked."""

    context_tokens = 99

    def __init__(self, *answers: ChatDelta) -> None:
        self._answers = iter(answers)
        self.sampling_defaults: dict[str, float] = {}
        self.asked: list[tuple[list[Message], Sequence[Any], str | None]] = []

    def count_tokens(self, messages: Sequence[Message], tools: Sequence[Any]) -> int:
        return len(messages) + len(tools)

    def answer(
        self,
        messages: Sequence[Message],
        params: SamplingParams,
        *,
        stop: tuple[str, ...],
        effort: str | None = None,
        tools: Sequence[Any] = (),
    ) -> Iterator[ChatDelta]:
        self.asked.append((list(messages), tools, effort))
        yield next(self._answers)


def session_of(model: Scripted, read_result: Callable[[str], str], **options: Any) -> Session:
    session = Session(
        model,
        Conversation(),
        SamplingParams(),
        read_result=lambda prompt: Entry(read_result(prompt)),
        **options,
    )
    session.tools = [WEATHER]
    return session


def run_command(session: Session, line: str) -> bool:
    return run_entry(session, Entry(line))


def test_results_are_asked_for_in_the_order_of_the_calls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = Scripted(
        ChatDelta("Let me see.", calls=(OSLO, BERGEN), finish_reason="tool_calls"),
        ChatDelta("7 and 9.", finish_reason="stop"),
    )
    prompts: list[str] = []
    results = iter(["7", "9"])

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        return next(results)

    session = session_of(model, typed)
    assert session.ask("Which is warmer?")
    exchange = [
        Message("user", "Which is warmer?"),
        Message("assistant", "Let me see.", (OSLO, BERGEN)),
        Message("tool", "7", tool_call_id="call_1"),
        Message("tool", "9", tool_call_id="call_2"),
    ]
    assert [messages for messages, _, _ in model.asked] == [exchange[:1], exchange]
    assert all(tools == [WEATHER] for _, tools, _ in model.asked)
    assert session.conversation.messages == [*exchange, Message("assistant", "7 and 9.")]
    assert prompts == ["result of get_weather> "] * 2
    said = capsys.readouterr()
    assert 'get_weather({"city": "Oslo"})' in said.err
    assert said.out == "Let me see.\n7 and 9.\n"
    assert session.conversation.undo() == "Which is warmer?"
    assert session.conversation.messages == []


@pytest.mark.parametrize("end", [EOFError, KeyboardInterrupt])
def test_an_exchange_without_a_result_is_dropped(end: type[BaseException]) -> None:
    def typed(_prompt: str) -> str:
        raise end

    session = session_of(Scripted(ChatDelta(calls=(OSLO,), finish_reason="tool_calls")), typed)
    assert not session.ask("How warm is it?")
    assert session.conversation.messages == []


@pytest.mark.parametrize("typed", ["", "/cancel", "/cancel please"])
def test_an_empty_line_and_cancel_leave_where_a_result_is_typed(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    called = ChatDelta(calls=(OSLO, BERGEN), finish_reason="tool_calls")
    session = session_of(Scripted(called), lambda _prompt: typed)
    assert not session.ask("How warm is it?")
    assert session.conversation.messages == []
    said = capsys.readouterr().err
    assert said.count("an empty line or /cancel drops the message") == 1
    assert said.endswith("(no result: the message was dropped)\n")


def test_a_command_is_no_result_unless_it_is_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    answers = ChatDelta(calls=(OSLO,), finish_reason="tool_calls"), ChatDelta("so", "", 1)
    typed = iter([Entry("/undo"), Entry("/undone now"), Entry("/undo", is_block=True)])
    session = session_of(Scripted(*answers), str)
    session._read_result = lambda _prompt: next(typed)
    assert session.ask("How warm is it?")
    assert session.conversation.messages[2] == Message("tool", "/undo", tool_call_id="call_1")
    said = capsys.readouterr().err
    assert "/undo is a command and no result of get_weather; /cancel drops the message" in said
    assert "/undone is a command" in said


@pytest.mark.parametrize("typed", ["", "/undo", "/usr/bin"])
def test_a_program_may_give_any_result(typed: str) -> None:
    answers = ChatDelta(calls=(OSLO,), finish_reason="tool_calls"), ChatDelta("so", "", 1)
    session = session_of(Scripted(*answers), lambda _prompt: typed, as_json=True)
    assert session.ask("How warm is it?")
    assert session.conversation.messages[2].content == typed


def test_help_has_every_command_and_the_command_line_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = CliRunner().invoke(cli, ["chat", "--help"], catch_exceptions=False).output
    assert [name for name in COMMANDS if f"  /{name} " not in shown] == []
    run_command(session_of(Scripted(), str), "/help")
    typed = capsys.readouterr().err
    assert [name for name in COMMANDS if f"/{name} " not in typed] == []


def test_where_no_result_is_typed_there_is_nothing_to_cancel(
    capsys: pytest.CaptureFixture[str],
) -> None:
    session = session_of(Scripted(), str)
    for line in ("/cancel", "/quit now", "/tols x"):
        assert run_command(session, line)
    said = capsys.readouterr().err
    assert "there is no call whose result is being typed" in said
    assert "/quit takes nothing, not 'now'" in said
    assert "/tols is not a command; /help lists them; did you mean '/tools'?" in said
    for line in ("/quit", "/exit"):
        with pytest.raises(EOFError):
            run_command(session, line)
    assert chat("/exit", "hello").stdout == ""


def test_an_answer_of_reasoning_alone_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    thought = ChatDelta(reasoning="so", output_tokens=2, finish_reason="length")
    session = session_of(Scripted(thought, ChatDelta("so", "", 1, finish_reason="length")), str)
    session.ask("How warm is it?")
    assert "(length: all tokens went to reasoning; /set max_tokens" in capsys.readouterr().err
    session.ask("How warm is it?")
    assert "reasoning" not in capsys.readouterr().err


def test_an_answer_that_ends_within_a_call_is_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    cut = Call("get_weather", '{"ci', "call_1")
    session = session_of(Scripted(ChatDelta(calls=(cut,), finish_reason="length")), str)
    assert not session.ask("How warm is it?")
    assert session.conversation.messages == []
    assert "the answer ended within its calls" in capsys.readouterr().err


def test_schema_tools_and_effort_are_saved_and_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "chat.json"
    model = Scripted(
        ChatDelta(calls=(OSLO,), finish_reason="tool_calls"), ChatDelta("7", finish_reason="stop")
    )
    session = session_of(model, lambda _prompt: "7")
    assert session.ask("How warm is it?")
    for line in ("/think low", '/schema {"type": "object"}', f"/save {path}"):
        assert run_command(session, line)
    other = session_of(Scripted(), str)
    run_command(other, f"/load {path}")
    assert other.conversation.messages == session.conversation.messages
    assert other.params == session.params
    assert (other.tools, other.effort) == ([WEATHER], "low")
    run_command(other, f"/save {tmp_path / 'again.json'}")
    assert load(tmp_path / "again.json") == load(path)
    capsys.readouterr()
    for line in ("/think", "/schema", "/tools", "/show"):
        run_command(other, line)
    said = capsys.readouterr().err
    assert "the reasoning effort is low\n" in said
    assert '{"type":"object"}\n' in said
    assert '"name": "get_weather"' in said
    assert "tools     get_weather\n" in said
    for line in ("/think default", "/schema off", "/tools off", "/think", "/schema", "/tools"):
        run_command(other, line)
    assert capsys.readouterr().err == (
        "the reasoning effort is default\nthere is no schema\nthere are no tools\n"
    )
    run_command(session, "/clear")
    plain = tmp_path / "plain.json"
    plain.write_text('{"messages": []}', encoding="utf-8")
    run_command(session, f"/load {plain}")
    assert (session.tools, session.effort, session.params.structured_outputs) == ([], None, None)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"schema": {"type": 5}}, "chat.json: schema: "),
        ({"tools": [{"type": "function"}]}, "chat.json: tools: tools[0]"),
        ({"effort": "much"}, "/think much: it must be"),
    ],
)
def test_a_file_with_something_wrong_changes_nothing(
    fields: dict[str, Any], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "chat.json"
    messages = [{"role": "user", "content": "x"}]
    path.write_text(json.dumps({"messages": messages, **fields}), encoding="utf-8")
    session = session_of(Scripted(), str)
    run_command(session, f"/load {path}")
    assert problem in capsys.readouterr().err
    assert session.conversation.messages == []
    assert session.tools == [WEATHER]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("/absent.json", "/tools /absent.json: No such file"),
        ("[", "/tools: is not JSON"),
        ("{", "/tools: is not JSON"),
        ("[1]", r"/tools: tools\[0\]: Expected `object`"),
        ('{"name": "now"}', r"/tools: tools\[0\]"),
        ("[]", r"/tools: it must be a list"),
        ('[{"type": "function"}]', r"/tools: tools\[0\].*missing required field `function`"),
        (json.dumps([WEATHER, WEATHER]), "is the name of an earlier tool"),
    ],
)
def test_tools_that_are_wrong_are_named(source: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_tools(source, "/tools")


def test_tools_are_typed_as_a_list_or_as_one() -> None:
    assert read_tools(json.dumps([WEATHER]), "/tools") == [WEATHER]
    assert read_tools(f" {json.dumps(WEATHER)}", "/tools") == [WEATHER]


def chat(*lines: str, flags: tuple[str, ...] = ("--json",)) -> Result:
    arguments = ["chat", "--temperature", "0", "--threads", "1", *flags]
    stdin = "".join(f"{line}\n" for line in lines)
    result = CliRunner().invoke(cli, arguments, input=stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_the_model_of_the_package_calls_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([WEATHER]), encoding="utf-8")
    lines = (f"/tools {path}", "What is the weather in Oslo?", '{"temperature_c": 7}')
    called, answered = (json.loads(line) for line in chat(*lines).stdout.splitlines())
    [call] = called["tool_calls"]
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Oslo"})
    assert called["finish_reason"] == "tool_calls"
    assert answered["text"]
    assert answered["tool_calls"] == []
    assert answered["cached_tokens"] >= called["prompt_tokens"]
    for_people = chat(*lines, flags=())
    assert for_people.stdout == f"{answered['text']}\n"
    assert 'get_weather({"city": "Oslo"})' in for_people.stderr


def test_schema_tools_and_effort_are_typed_as_flags_too(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([WEATHER]), encoding="utf-8")
    flags = ("--tools", str(path), "--schema", '{"enum": ["yes"]}', "--reasoning-effort", "off")
    shown = chat("/show", "/tools off", "x", flags=(*flags, "--thinking-token-budget", "0"))
    assert shown.stdout == '"yes"\n'
    for line in ("tools     get_weather", "schema    set", "effort    none"):
        assert f"{line}\n" in shown.stderr
    assert re.search(r"^thinking_token_budget +0$", shown.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("flag", "value", "problem"),
    [
        ("--schema", "/absent.json", "--schema /absent.json: No such file"),
        ("--tools", "[1]", "--tools: tools[0]: Expected `object`"),
        ("--reasoning-effort", "banana", "--reasoning-effort banana: it must be on, off, default"),
    ],
)
def test_flags_that_are_wrong_are_named_before_a_model_is_loaded(
    flag: str, value: str, problem: str
) -> None:
    refused = CliRunner().invoke(cli, ["chat", "/absent", flag, value])
    assert problem in f"{refused.output}{refused.exception}"


def test_formats_are_named_as_to_the_server(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([WEATHER]), encoding="utf-8")
    lines = (f"/tools {path}", "What is the weather in Oslo?")
    flags = ("--json", "--tool-call-parser", "none")
    [unread] = (json.loads(line) for line in chat(*lines, flags=flags).stdout.splitlines())
    assert unread["tool_calls"] == []
    assert "get_weather" in unread["text"]
    config = tmp_path / "settings.yaml"
    config.write_text("tool_call_parser: none\nport: 1\n", encoding="utf-8")
    in_file = chat(*lines, flags=("--json", "--config", str(config))).stdout
    assert json.loads(in_file)["text"] == unread["text"]


@pytest.mark.parametrize("flag", ["--tool-call-parser", "--reasoning-parser"])
def test_a_format_is_for_a_model_that_is_loaded_here(flag: str) -> None:
    refused = CliRunner().invoke(cli, ["chat", "--url", "http://127.0.0.1:1", flag, "none"])
    assert refused.exit_code == 2
    assert f"{flag} is for a model that is loaded here" in refused.output
    unknown = CliRunner().invoke(cli, ["chat", flag, "nope"])
    assert unknown.exit_code != 0
    assert isinstance(unknown.exception, ConfigError) or "nope" in unknown.output
