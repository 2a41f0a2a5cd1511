"""`headrace chat --url`: the chat of the terminal with a server's model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.chat.conversation import Message
from headrace.cli.chat.model import ChatDelta
from headrace.cli.chat.remote import RemoteModel, _deltas
from headrace.cli.main import cli
from headrace.cli.server_url import base_url, first_key
from headrace.config import ServerConfig
from headrace.errors import ConfigError, ContextLengthError, HeadraceError, RequestError
from headrace.offline.params import SamplingParams
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


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://x", "http://", "http://x/?a=b"])
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
    assert ChatDelta("ab", 1) in told


@pytest.mark.parametrize(
    ("chunks", "problem"),
    [
        ([chunk("a"), {"error": {"message": "it broke"}}], "it broke"),
        ([chunk("a")], "before the answer's end"),
        ([chunk("a"), "nonsense"], "not an event"),
        ([{"choices": [5]}, "[DONE]"], "not a part of an answer"),
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
    with pytest.raises(RequestError, match="the empty string cannot be a stop string"):
        list(remote.answer(HI, SamplingParams(), stop=("",)))
    remote.close()
