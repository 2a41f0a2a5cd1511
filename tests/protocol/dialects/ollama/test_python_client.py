"""The ollama package reads what is written here, and asks what is read here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.protocol.dialects.ollama import CLIENT, OllamaClient, load, models
from headrace.protocol.neutral.collect import replayed
from headrace.protocol.neutral.embedding import EmbeddingCall, EmbeddingReply
from headrace.protocol.neutral.part import Text, Thinking, ToolCall
from headrace.protocol.neutral.reply import ChatReply, Choice
from headrace.protocol.neutral.usage import TokenUsage
from tests.protocol.dialects.ollama.samples import WEATHER_TOOL, call

ollama = pytest.importorskip("ollama")

NOW = "2026-11-22T11:00:00Z"
REPLY = ChatReply(
    dialect="x",
    id="",
    model="claude",
    choices=(
        Choice(
            parts=(
                Thinking(text="Hm."),
                Text(text="Grü\u2028ße"),
                ToolCall(id="c", name="f", arguments='{"a":1}'),
            ),
            finish="tool_calls",
        ),
    ),
    usage=TokenUsage(input_tokens=3, output_tokens=4),
)


def test_whole_answers() -> None:
    told = ollama.ChatResponse(**json.loads(OllamaClient(NOW).write_reply(REPLY, call())))
    assert told.message.content == "Grü\u2028ße"
    assert told.message.thinking == "Hm."
    assert told.message.tool_calls[0].function.name == "f"
    assert told.message.tool_calls[0].function.arguments == {"a": 1}
    assert (told.done, told.done_reason, told.created_at) == (True, "stop", NOW)
    assert (told.prompt_eval_count, told.eval_count, told.total_duration) == (3, 4, 0)


def client(handler: Any) -> Any:
    """The package's client, whose requests `handler` answers."""
    httpx = pytest.importorskip("httpx")
    return ollama.Client(host="http://test", transport=httpx.MockTransport(handler))


def test_streams_through_the_packages_own_reader() -> None:
    httpx = pytest.importorskip("httpx")
    asked = []

    def answer(request: Any) -> Any:
        read = CLIENT.read_call(request.content, request.url.path, request.headers)
        asked.append(read)
        writer = OllamaClient(NOW).stream_writer(read)
        stream = b"".join(writer.write(event) + writer.keep_alive() for event in replayed(REPLY))
        return httpx.Response(200, content=stream, headers={"content-type": CLIENT.stream_type()})

    chunks = list(
        client(answer).chat(
            model="m",
            messages=[
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}],
                },
                {"role": "tool", "tool_name": "f", "content": "x"},
            ],
            tools=[WEATHER_TOOL],
            options={"temperature": 0.5, "num_ctx": 99},
            think=True,
            stream=True,
        )
    )
    assert "".join(one.message.content or "" for one in chunks) == "Grü\u2028ße"
    assert "".join(one.message.thinking or "" for one in chunks) == "Hm."
    assert [one.done for one in chunks] == [False] * (len(chunks) - 1) + [True]
    (read,) = asked
    assert read.stream
    assert read.temperature == 0.5
    assert read.extra == {"options": {"num_ctx": 99}}
    assert [one.role for one in read.messages] == ["user", "assistant", "tool"]
    assert read.tools[0].name == "get_weather"


def test_failures_raise_in_the_client() -> None:
    httpx = pytest.importorskip("httpx")
    no_model = json.dumps({"error": str(models.no_model("m", ["n"]))}).encode()
    with pytest.raises(ollama.ResponseError, match="not found") as error:
        client(lambda _: httpx.Response(404, content=no_model)).chat(model="m")
    assert error.value.status_code == 404


def test_lists_and_descriptions() -> None:
    httpx = pytest.importorskip("httpx")
    tags = client(lambda _: httpx.Response(200, content=models.write_tags(["a", "b"], NOW))).list()
    assert [one.model for one in tags.models] == ["a", "b"]

    def show(request: Any) -> Any:
        name = models.read_show(request.content)
        return httpx.Response(200, content=models.write_show(name, context_length=9))

    told = client(show).show("a")
    assert told.capabilities == ["completion"]
    assert told.modelinfo["headrace.context_length"] == 9


def test_embeddings_and_loads() -> None:
    httpx = pytest.importorskip("httpx")

    def embed(request: Any) -> Any:
        read: EmbeddingCall = CLIENT.read_embedding_call(request.content, "", {})
        reply = EmbeddingReply(model="m", vectors=(bytes(8),) * len(read.inputs))
        return httpx.Response(200, content=CLIENT.write_embedding_reply(reply, read))

    told = client(embed).embed(model="m", input=["a", "b"])
    assert [list(one) for one in told.embeddings] == [[0, 0], [0, 0]]

    def loaded(request: Any) -> Any:
        read = CLIENT.read_call(request.content, "", {})
        return httpx.Response(200, content=CLIENT.write_reply(load.load_reply(read), read))

    told = client(loaded).chat(model="m", messages=[], keep_alive=0)
    assert told.done_reason == "unload"
