"""`headrace chat --url`: the chat of the terminal with a server's model."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli import server_client
from headrace.cli.chat.conversation import Call, Message
from headrace.cli.chat.model import ChatDelta
from headrace.cli.chat.remote import RemoteModel, _deltas
from headrace.cli.main import cli, main
from headrace.cli.server_url import base_url, first_key
from headrace.config import ServerConfig
from headrace.errors import ConfigError, ContextLengthError, HeadraceError, RequestError
from headrace.offline.params import SamplingParams
from tests.server.chat.test_tools import CALL, WEATHER, with_tools
from tests.server.conftest import MODEL, Running
from tests.server.mock_engine import MAX_MODEL_LEN, MockEngine, says

Start = Callable[..., Running]
HI = [Message("user", "hi")]


def chat(
    url: str, *lines: str, flags: tuple[str, ...] = (), as_json: bool = True, key: str | None = None
) -> Result:
    arguments = ["chat", "--url", url, *flags, *(["--json"] if as_json else [])]
    stdin = "".join(f"{line}\n" for line in lines)
    environment = {"HEADRACE_API_KEY": key}
    return CliRunner(env=environment).invoke(cli, arguments, input=stdin)


def answers(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def submitted(server: Running) -> Any:
    assert isinstance(server.engine, MockEngine)
    return server.engine.submitted


def test_a_conversation(start: Start) -> None:
    server = start(MockEngine(says("hello", cached_tokens=2)))
    first, second = answers(chat(server.url, "hi", "and?"))
    assert first["text"] == second["text"] == "hello"
    assert first["finish_reason"] == "stop"
    assert (first["completion_tokens"], first["cached_tokens"]) == (6, 2)
    assert first["prompt_tokens"] == len(submitted(server)[0].prompt_token_ids)
    text = bytes(i for i in submitted(server)[1].prompt_token_ids if i < 256).decode()
    assert text == "user\nhi\nassistant\nhello\nuser\nand?\nassistant\n"


def test_only_what_is_set_is_sent(start: Start) -> None:
    server = start(MockEngine(says("abcdef", ends=False)))
    flags = ("--temperature", "0.25", "--max-tokens", "3", "--system", "be brief", "--stop", "zz")
    (answer,) = answers(chat(f"{server.url}/v1/", "/set top_k 7", "hi", flags=flags))
    assert (answer["text"], answer["finish_reason"]) == ("abc", "length")
    params = submitted(server)[0].params
    assert (params.temperature, params.top_k, params.max_tokens) == (0.25, 7, 3)
    assert params.top_p == 1


def test_what_is_shown(start: Start) -> None:
    server = start(MockEngine(says("hello")))
    result = chat(server.url, "hi", "/tokens", "/show", as_json=False)
    assert result.exit_code == 0, result.output
    assert "hello" in result.stdout
    assert "prompt 21 tokens" in result.stderr
    assert f"context 27 of {MAX_MODEL_LEN}]" in result.stderr
    assert f"of {MAX_MODEL_LEN} tokens of context" in result.stderr
    assert f"model     {MODEL} at {server.url}" in result.stderr


def test_a_named_model_and_an_unknown_one(start: Start) -> None:
    server = start(MockEngine(says("x")))
    result = CliRunner().invoke(cli, ["chat", "alias", "--url", server.url, "--json"], input="hi\n")
    assert answers(result)[0]["text"] == "x"
    result = CliRunner().invoke(cli, ["chat", "gpt-9", "--url", server.url], input="hi\n")
    assert "gpt-9" in result.stderr and "does not exist" in result.stderr


def test_the_key_is_read_from_the_environment(start: Start) -> None:
    server = start(MockEngine(says("x")), config=ServerConfig(api_key=("one", "two")))
    assert answers(chat(server.url, "hi", key="one, two"))[0]["text"] == "x"
    for key in (None, "wrong"):
        result = chat(server.url, "hi", key=key)
        assert result.exit_code == 1
        assert "HEADRACE_API_KEY" in str(result.exception)
        assert "wrong" not in str(result.exception)


def test_a_full_context_says_what_to_do(start: Start) -> None:
    server = start(MockEngine(says("x")))
    result = chat(server.url, "y" * MAX_MODEL_LEN)
    assert answers(result) == []
    assert "maximum context length is" in result.stderr
    assert "/undo removes the last exchange" in result.stderr


def test_no_server(start: Start) -> None:
    result = chat("http://127.0.0.1:9", "hi")
    assert result.exit_code == 1
    assert "cannot be reached" in str(result.exception)
    assert "headrace serve" in str(result.exception)


def test_flags_of_a_model_that_is_loaded_are_refused(start: Start) -> None:
    result = chat("http://127.0.0.1:9", "hi", flags=("--threads", "2"))
    assert result.exit_code == 2
    assert "--threads is for a model that is loaded here" in result.stderr


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"),
        ("https://llm.example/openai/v1/", "https://llm.example/openai/v1"),
    ],
)
def test_where_the_api_is(url: str, base: str) -> None:
    assert base_url(url, "--url") == base


@pytest.mark.parametrize(
    "url",
    [
        "", "127.0.0.1:8000", "ftp://x", "http://", "http://x/?a=b", "http://[::1", "http://x:abc",
        "http://x:99999", "http://a..b", f"http://{'a' * 300}", "http://x\0y", "http://a b",
        "http://\u2028",
    ],
)  # fmt: skip
def test_what_is_not_a_url(url: str) -> None:
    with pytest.raises(ConfigError, match="--url"):
        base_url(url, "--url")


def test_the_first_key() -> None:
    assert first_key({"HEADRACE_API_KEY": " a , b"}) == "a"
    assert first_key({"HEADRACE_API_KEY": ""}) is first_key({}) is None


def events(*chunks: dict[str, Any] | str) -> Iterator[bytes]:
    """A stream in pieces of seven bytes."""
    texts = [item if isinstance(item, str) else json.dumps(item) for item in chunks]
    data = "".join(f"data: {text}\n\n" for text in texts).encode()
    return (data[at : at + 7] for at in range(0, len(data), 7))


def chunk(content: str | None, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": content}, "finish_reason": reason}]}


def test_tokens_are_what_the_server_counts() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 7, "prompt_tokens_details": None}
    told = list(
        _deltas(
            events(
                chunk(""), chunk("ab"), chunk("c"), chunk(None, "stop"),
                {"choices": [], "usage": usage}, "[DONE]",
            )
        )
    )  # fmt: skip
    assert "".join(delta.text for delta in told) == "abc"
    assert sum(delta.output_tokens for delta in told) == 7
    assert [delta.prompt_tokens for delta in told if delta.prompt_tokens] == [9]
    assert ChatDelta("ab", output_tokens=1) in told


def test_a_schema_and_an_effort_are_sent(start: Start) -> None:
    server = start(MockEngine(says('{"a":"x"}')))
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    lines = (f"/schema {json.dumps(schema)}", "hi", "/schema off", "/think off", "hi")
    held, free = answers(chat(server.url, *lines))
    assert held["text"] == free["text"] == '{"a":"x"}'
    assert held["reasoning"] == ""
    grammar = submitted(server)[0].params.grammar
    assert grammar.kind == "json_schema"
    assert json.loads(grammar.text)["properties"] == schema["properties"]
    assert submitted(server)[1].params.grammar is None
    wrong = chat(server.url, "/schema /absent", "/schema {", "/think much", as_json=False)
    for problem in (
        "/schema /absent: No such file",
        "/schema: is not JSON",
        "/think much: it must be",
    ):
        assert problem in wrong.stderr


def test_calls_of_a_server_have_results_that_are_typed(start: Start) -> None:
    server = with_tools(start, MockEngine(says(f"Let me see.\n{CALL}")))
    lines = (f"/tools {json.dumps([WEATHER])}", "warm?", "9 degrees")
    first, second = answers(chat(server.url, *lines))
    for answer in (first, second):
        assert answer["text"] == "Let me see."
        assert answer["finish_reason"] == "tool_calls"
        [call] = answer["tool_calls"]
        assert (call["name"], call["arguments"]) == ("get_weather", '{"city": "Köln"}')
        assert call["id"].startswith("call_")
    prompts = [
        bytes(i for i in one.prompt_token_ids if i < 256).decode() for one in submitted(server)
    ]
    shown = prompts[0].index('"name": "get_weather"')
    assert shown < prompts[0].index("user:warm?")
    assert prompts[1].startswith(prompts[0])
    assert prompts[1].removeprefix(prompts[0]) == (
        'assistant:Let me see.get_weather({"city": "Köln"})tool:9 degrees'
    )


def test_a_call_of_a_server_comes_in_parts() -> None:
    parts: list[dict[str, Any]] = [
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"x"'}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "g"}},
        {"index": 0, "function": {"arguments": ": 1}"}},
    ]
    chunks = [{"choices": [{"delta": {"tool_calls": [part]}}]} for part in parts]
    told = list(_deltas(events(*chunks, chunk(None, "tool_calls"), "[DONE]")))
    assert [call for delta in told for call in delta.calls] == [
        Call("f", '{"x": 1}', "a"), Call("g", "", "b"),
    ]  # fmt: skip
    assert sum(delta.output_tokens for delta in told) == len(parts)


def test_reasoning_of_a_server_is_apart() -> None:
    thought = {"choices": [{"delta": {"reasoning": "a", "reasoning_content": "a"}}]}
    told = list(_deltas(events(thought, chunk("b", "stop"), "[DONE]")))
    assert [(delta.reasoning, delta.text) for delta in told] == [("a", ""), ("", "b")]
    assert sum(delta.output_tokens for delta in told) == 2


@pytest.mark.parametrize(
    ("chunks", "problem"),
    [
        ([chunk("a"), {"error": {"message": "it broke"}}], "it broke"),
        ([chunk("a")], "before the answer's end"),
        ([chunk("a"), "nonsense"], "not an event"),
        ([{"choices": [5]}, "[DONE]"], "not a part of an answer"),
        ([{"choices": 5}, "[DONE]"], "a list is required"),
        (['{"choices":' + "[" * 100_000], "not an event"),
    ],
)
def test_a_stream_that_is_damaged(chunks: list[Any], problem: str) -> None:
    with pytest.raises(HeadraceError, match=problem):
        list(_deltas(events(*chunks)))


def test_refusals_are_the_servers_words(start: Start) -> None:
    server = start(MockEngine(says("x")))
    remote = RemoteModel(server.url)
    assert (remote.name, remote.context_tokens) == (MODEL, MAX_MODEL_LEN)
    with pytest.raises(ContextLengthError) as full:
        list(remote.answer([Message("user", "y" * 400)], SamplingParams(), stop=()))
    assert full.value.context_tokens == MAX_MODEL_LEN
    assert (full.value.prompt_tokens or 0) > 400
    with pytest.raises(RequestError, match="characters given, at most"):
        list(remote.answer(HI, SamplingParams(), stop=("x" * 100_000,)))
    remote.close()


def test_usage_of_other_types_counts_as_none() -> None:
    usage = {"prompt_tokens": "9", "completion_tokens": 10**30, "prompt_tokens_details": [1]}
    told = list(_deltas(events(chunk("ab"), {"choices": None, "usage": usage}, "[DONE]")))
    assert [(delta.prompt_tokens, delta.cached_tokens) for delta in told] == [(None, 0), (0, 0)]


class Stranger(BaseHTTPRequestHandler):
    """A server that answers every GET with the same body."""

    body = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def strange() -> Iterator[Callable[[bytes], str]]:
    """`strange(body)` is the URL of a server with this body."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()

    def answering(body: bytes) -> str:
        Stranger.body = body
        return f"http://127.0.0.1:{server.server_port}"

    yield answering
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\xff", b"[]", b'{"data": 5}', b'{"data": null}', b'{"data": [5, {"id": 7}]}',
        b"[" * 100_000, b'{"data":' * 100_000, b'{"data": [{"id": "m\\ud800"}]}',
        b'{"data": [{"id": "m", "default_sampling_params": [1]}]}',
        b'{"data": [{"id": "m", "default_sampling_params": {"top_p": 1%s}}]}' % (b"0" * 400),
        b'{"data": [{"id": "m", "max_model_len": -1}], "uptime_s": 1%s}' % (b"0" * 400),
        b'{"data": [{"id": "m", "max_model_len": NaN}], "uptime_s": NaN}',
    ],
)  # fmt: skip
def test_a_server_of_strange_replies(strange: Callable[[bytes], str], body: bytes) -> None:
    """An error in one line, or a row of what could be read."""
    url = strange(body)
    for command in (["ps", url], ["ps", url, "--json"], ["chat", "--url", url]):
        result = CliRunner().invoke(cli, command, input="")
        assert result.exception is None or isinstance(result.exception, HeadraceError), command


def test_a_reply_without_end(
    strange: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_client, "MAX_REPLY_BYTES", 1000)
    with pytest.raises(HeadraceError, match="more than 1000 bytes"):
        RemoteModel(strange(b'{"data": []' + b" " * 2000))


def test_a_key_that_no_header_can_carry() -> None:
    with pytest.raises(ConfigError, match="HEADRACE_API_KEY"):
        RemoteModel("http://127.0.0.1:9", key="\u00e9")


def test_what_a_server_says_does_nothing_to_a_terminal(
    strange: Callable[[bytes], str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = strange(b'{"data": [{"id": "m\\u001b]0;x\\u0007"}]}')
    shown = CliRunner().invoke(cli, ["chat", "--url", url], input="/show\n").stderr
    assert "m\\x1b]0;x\\x07" in shown
    assert "\x1b]" not in shown
    monkeypatch.setattr(sys, "argv", ["headrace", "chat", "--url", "http://\x1b]0;x\x07"])
    with pytest.raises(SystemExit):
        main()
    assert "\x1b" not in capsys.readouterr().err
