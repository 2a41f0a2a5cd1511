"""What Replicate is asked."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.replicate import PROVIDER, ReplicateProvider
from headrace.protocol.neutral.call import Message, OutputFormat, Reasoning, Tool
from headrace.protocol.neutral.dialect import EncodedRequest
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.protocol.dialects.replicate.samples import call

VERSION = "ac732df83cea7fff18b8472768c88ad041fa750ff7682a21affe81863cbe77e4"
LLAMA = "meta/meta-llama-3-8b-instruct"


def given(*texts: str, **fields: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(PROVIDER.write_call(call(*texts, **fields), LLAMA).body)
    return told["input"]


def test_one_turn_is_the_prompt_as_it_is() -> None:
    assert PROVIDER.write_call(call("Tell me a joke"), LLAMA) == EncodedRequest(
        f"/v1/models/{LLAMA}/predictions",
        {"content-type": "application/json", "accept": "application/json", "prefer": "wait"},
        b'{"input":{"prompt":"Tell me a joke"}}',
    )


def test_a_stream_is_not_waited_for() -> None:
    written = PROVIDER.write_call(call(stream=True), LLAMA)
    assert "prefer" not in written.headers
    assert json.loads(written.body)["stream"] is True


@pytest.mark.parametrize(
    ("model", "path", "version"),
    [
        (LLAMA, f"/v1/models/{LLAMA}/predictions", None),
        (f"meta/llama:{VERSION}", "/v1/predictions", VERSION),
        (VERSION, "/v1/predictions", VERSION),
        ("deployments/me/mine", "/v1/deployments/me/mine/predictions", None),
    ],
)
def test_where_a_model_is_asked(model: str, path: str, version: str | None) -> None:
    written = PROVIDER.write_call(call(), model)
    assert written.path == path
    assert json.loads(written.body).get("version") == version


@pytest.mark.parametrize(
    "model",
    ["llama", "a/b/c", "../x", "a/..", "a/", "/b", "a/b:latest", "a/b?x=1", "a/b%2f", "a b/c", ""],
)
def test_names_that_are_none_are_refused(model: str) -> None:
    with pytest.raises(RequestError, match="owner/name") as error:
        PROVIDER.write_call(call(), model)
    assert error.value.param == "model"


def test_a_conversation_is_a_transcript() -> None:
    told = given(
        "Hi",
        "Hello!",
        "Who?",
        instructions=(Text(text="Be brief."), Text(text="Be kind.")),
    )
    assert told == {
        "prompt": "User: Hi\n\nAssistant: Hello!\n\nUser: Who?\n\nAssistant:",
        "system_prompt": "Be brief.\n\nBe kind.",
    }
    begun = given("Hi", "Hel")
    assert begun == {"prompt": "User: Hi\n\nAssistant: Hel"}
    late = Message(role="user", parts=(Text(text="In French."),), extra={"role": "system"})
    assert given(messages=(late,)) == {"prompt": "System: In French.\n\nAssistant:"}


def test_inputs_of_the_same_name() -> None:
    told = given(
        max_tokens=9,
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        repetition_penalty=1.1,
        seed=0,
        stop=("<end>", "stop"),
    )
    assert told == {
        "prompt": "Hi",
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "repetition_penalty": 1.1,
        "seed": 0,
        "stop_sequences": "<end>,stop",
    }
    old = ReplicateProvider("max_new_tokens").write_call(call(max_tokens=9), LLAMA)
    assert json.loads(old.body)["input"] == {"prompt": "Hi", "max_new_tokens": 9}


def test_what_replicate_has_no_words_for_is_named() -> None:
    asked = call(
        tools=(Tool(name="f"),),
        choices=2,
        min_p=0.1,
        logprobs=True,
        stop=("a,b",),
        output=OutputFormat(kind="json"),
        reasoning=Reasoning(effort="low"),
        user="u",
        extra={"x": 1},
        instructions=(Text(text="Be brief.", cache=CacheMark()),),
        messages=(
            Message(role="assistant", parts=(Text(text="a"), Thinking(text="b")), name="n"),
            Message(role="user", parts=(Media(kind="image", data="AAAA", detail="low"),)),
        ),
    )
    assert sorted(PROVIDER.write_call(asked, LLAMA).dropped) == sorted(
        [
            "tools",
            "choices",
            "min_p",
            "logprobs",
            "stop",
            "output",
            "reasoning",
            "user",
            "extra.x",
            "messages.name",
            "messages.detail",
            "cache",
        ]
    )


def test_one_image() -> None:
    def told(*parts: Part) -> dict[str, Any]:
        return given(messages=(Message(role="user", parts=(Text(text="?"), *parts)),))

    data = Media(kind="image", mime="image/png", data="AAAA")
    url = Media(kind="image", url="https://x.org/a.png")
    assert told(data)["image"] == "data:image/png;base64,AAAA"
    assert told(url)["image"] == "https://x.org/a.png"
    with pytest.raises(RequestError, match="2 images"):
        told(data, url)
    with pytest.raises(RequestError, match="base64"):
        told(Media(kind="image", file_id="f"))
    with pytest.raises(RequestError, match="media"):
        told(Media(kind="audio", data="AAAA"))


@pytest.mark.parametrize(
    "part",
    [ToolCall(id="c", name="f", arguments="{}"), ToolResult(call_id="c", content=())],
    ids=["call", "result"],
)
def test_turns_of_tools_cannot_be_said(part: Part) -> None:
    with pytest.raises(RequestError, match="tool") as error:
        given(messages=(Message(role="assistant", parts=(part,)),))
    assert error.value.param == "messages[0]"
