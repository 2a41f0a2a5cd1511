"""Turns of a conversation as `contents`."""

from __future__ import annotations

import pytest

from headrace.errors import RequestError
from headrace.protocol.dialects.gemini import GeminiProvider, VertexAi
from headrace.protocol.dialects.gemini.request.contents import NO_SIGNATURE
from headrace.protocol.neutral.call import Message
from headrace.protocol.neutral.part import (
    CacheMark,
    Media,
    Opaque,
    Refusal,
    Signature,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from tests.protocol.dialects.gemini.samples import (
    a_call,
    assistant,
    dropped,
    tool,
    user,
    written,
)

SIGNED = Signature("gemini", "c2ln")
FOREIGN = Signature("anthropic", "abc")
PNG = "iVBORw0KGgoAAAANSUhEUg=="


def result(call_id: str, text: str, **fields: bool) -> ToolResult:
    return ToolResult(call_id=call_id, content=(Text(text=text),), **fields)


def weather(call_id: str, signature: Signature | None = None) -> ToolCall:
    return ToolCall(id=call_id, name="weather", arguments='{"at":"Bonn"}', signature=signature)


def contents(*messages: Message, model: str = "gemini-2.5-flash") -> list[dict[str, object]]:
    found: list[dict[str, object]] = written(a_call(*messages), model)["contents"]
    return found


def test_turns_of_one_role_become_one() -> None:
    assert contents(user("a"), user("b"), assistant("c"), assistant("d"), user("e")) == [
        {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
        {"role": "model", "parts": [{"text": "c"}, {"text": "d"}]},
        {"role": "user", "parts": [{"text": "e"}]},
    ]


def test_instructions_stand_beside_the_turns() -> None:
    body = written(a_call(user("hi"), instructions=(Text(text="be brief"), Text(text="be kind"))))
    assert body["systemInstruction"] == {"parts": [{"text": "be brief"}, {"text": "be kind"}]}
    assert body["contents"] == [{"role": "user", "parts": [{"text": "hi"}]}]


def test_instructions_alone_are_told_to_a_silent_user() -> None:
    call = a_call(user("x"), instructions=(Text(text="joke"),))
    body = written(type(call)(dialect="x", model="m", messages=(), instructions=call.instructions))
    assert body["contents"] == [{"role": "user", "parts": [{"text": ""}]}]


def test_no_messages_at_all_are_refused() -> None:
    call = a_call()
    with pytest.raises(RequestError) as refused:
        written(type(call)(dialect="x", model="m", messages=()))
    assert refused.value.param == "messages"


def test_system_text_between_turns_is_a_users() -> None:
    system = Message(role="user", parts=(Text(text="be brief"),), extra={"role": "system"})
    call = a_call(user("a"), assistant("b"), system, user("c"))
    assert written(call)["contents"][2]["parts"] == [{"text": "be brief"}, {"text": "c"}]
    assert dropped(call) == ("messages.role",)


def test_an_empty_answer_stays_a_turn_and_empty_text_beside_others_goes() -> None:
    assert contents(user("a"), assistant(""), user("", "b")) == [
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"text": ""}]},
        {"role": "user", "parts": [{"text": "b"}]},
    ]


def test_results_stand_alone_in_the_order_of_their_calls() -> None:
    made = contents(
        user("go"),
        assistant("let me see", weather("c1"), weather("c2")),
        tool(result("c2", "rain")),
        tool(result("c1", "sun")),
        user("and?"),
    )
    assert made[1]["parts"] == [
        {"text": "let me see"},
        {"functionCall": {"name": "weather", "args": {"at": "Bonn"}, "id": "c1"}},
        {"functionCall": {"name": "weather", "args": {"at": "Bonn"}, "id": "c2"}},
    ]
    assert made[2] == {
        "role": "user",
        "parts": [
            {"functionResponse": {"name": "weather", "response": {"result": "sun"}, "id": "c1"}},
            {"functionResponse": {"name": "weather", "response": {"result": "rain"}, "id": "c2"}},
        ],
    }
    assert made[3] == {"role": "user", "parts": [{"text": "and?"}]}


def test_an_id_used_again_belongs_to_the_last_call() -> None:
    other = ToolCall(id="c1", name="time", arguments="{}")
    made = contents(
        user("a"), assistant(weather("c1")), tool(result("c1", "sun")),
        user("b"), assistant(other), tool(result("c1", "noon")),
    )  # fmt: skip
    assert made[2]["parts"][0]["functionResponse"]["name"] == "weather"  # type: ignore[index]
    assert made[5]["parts"][0]["functionResponse"]["name"] == "time"  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "fields", "response"),
    [
        ("sun", {}, {"result": "sun"}),
        ("", {}, {"result": ""}),
        ('{"sky": "blue"}', {}, {"sky": "blue"}),
        ("[1, 2]", {}, {"result": "[1, 2]"}),
        ("{not json", {}, {"result": "{not json"}),
        ("gone", {"is_error": True}, {"error": "gone"}),
        ('{"a": 1}', {"is_error": True}, {"error": '{"a": 1}'}),
    ],
)
def test_a_result_is_always_an_object(
    text: str, fields: dict[str, bool], response: dict[str, object]
) -> None:
    made = contents(user("a"), assistant(weather("c1")), tool(result("c1", text, **fields)))
    assert made[2]["parts"][0]["functionResponse"]["response"] == response  # type: ignore[index]


def test_texts_of_one_result_stay_apart() -> None:
    two = ToolResult(call_id="c1", content=(Text(text="a"), Text(text="b")))
    made = contents(user("a"), assistant(weather("c1")), tool(two))
    found = made[2]["parts"][0]["functionResponse"]["response"]  # type: ignore[index]
    assert found == {"result": ["a", "b"]}


def test_a_result_of_an_unknown_call_needs_a_name() -> None:
    with pytest.raises(RequestError, match="'c9'"):
        contents(user("a"), tool(result("c9", "sun")))
    named = ToolResult(call_id="c9", name="weather", content=(Text(text="sun"),))
    assert contents(user("a"), tool(named))[1]["parts"] == [
        {"functionResponse": {"name": "weather", "response": {"result": "sun"}, "id": "c9"}}
    ]


@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        ("", {}),
        ("{}", {}),
        ('{"n": 12345678901234567890123, "x": 1.50}', {"n": 12345678901234567890123, "x": 1.5}),
        ("[1]", {"arguments": "[1]"}),
        ('{"cut": "of', {"arguments": '{"cut": "of'}),
        ('{"a": {"b": [1,}}', {"arguments": '{"a": {"b": [1,}}'}),
        ("null", {}),
    ],
)
def test_arguments_are_always_an_object(arguments: str, args: dict[str, object]) -> None:
    call = ToolCall(id="c1", name="f", arguments=arguments)
    made = contents(user("a"), assistant(call))
    assert made[1]["parts"][0]["functionCall"]["args"] == args  # type: ignore[index]


def test_vertex_v1_knows_no_ids_of_calls() -> None:
    call = a_call(user("a"), assistant(weather("c1")), tool(result("c1", "sun")))
    for version, known in (("v1", False), ("v1beta1", True)):
        place = VertexAi(project="p", location="global", version=version)
        made = written(call, "gemini-3-flash", GeminiProvider(place=place))["contents"]
        assert ("id" in made[1]["parts"][0]["functionCall"]) == known
        assert ("id" in made[2]["parts"][0]["functionResponse"]) == known


def test_signatures_go_back_in_their_place() -> None:
    made = contents(
        user("a"),
        assistant(
            Thinking(text="hm", signature=SIGNED),
            Text(text="b", signature=SIGNED),
            weather("c1", SIGNED),
            Text(text="", signature=SIGNED),
            Media(kind="image", mime="image/png", data=PNG, signature=SIGNED),
            Opaque("gemini", {"executableCode": {"code": "1"}, "thoughtSignature": "eA=="}),
        ),
    )
    parts = made[1]["parts"]
    assert isinstance(parts, list)
    assert [one["thoughtSignature"] for one in parts] == ["c2ln"] * 5 + ["eA=="]
    assert parts[0] == {"text": "hm", "thought": True, "thoughtSignature": "c2ln"}
    assert parts[3] == {"text": "", "thoughtSignature": "c2ln"}


def test_what_others_signed_and_unsigned_thoughts_are_left_out() -> None:
    call = a_call(
        user("a"),
        assistant(
            Thinking(text="x", signature=FOREIGN),
            Thinking(text="y"),
            Text(text="b", signature=FOREIGN),
        ),
        assistant(Thinking(text="z")),
        user("c"),
    )
    made = written(call)["contents"]
    assert made[1] == {"role": "model", "parts": [{"text": "b"}]}
    assert len(made) == 3
    assert dropped(call) == ()


@pytest.mark.parametrize(
    ("model", "signed"),
    [
        ("gemini-3-pro-preview", True),
        ("gemini-3.1-flash-lite", True),
        ("models/gemini-flash-latest", True),
        ("gemini-3-pro-image-preview", False),
        ("gemini-2.5-pro", False),
        ("gemini-2.0-flash", False),
        ("gemma-3-27b-it", False),
    ],
)
def test_calls_of_another_model_get_the_documented_signature(model: str, signed: bool) -> None:
    made = contents(
        user("a"),
        assistant("b", weather("c1", FOREIGN), weather("c2")),
        tool(result("c1", "x"), result("c2", "y")),
        assistant(weather("c3")),
        tool(result("c3", "z")),
        model=model,
    )
    found = [part.get("thoughtSignature") for turn in made for part in turn["parts"]]  # type: ignore[attr-defined]
    dummy = NO_SIGNATURE if signed else None
    assert found == [None, None, dummy, None, None, None, dummy, None]
    assert NO_SIGNATURE == "skip_thought_signature_validator"


def test_a_signature_of_geminis_own_is_never_replaced() -> None:
    made = contents(
        user("a"), assistant(weather("c1", SIGNED), weather("c2")), model="gemini-3-flash"
    )
    parts = made[1]["parts"]
    assert isinstance(parts, list)
    assert [one.get("thoughtSignature") for one in parts] == ["c2ln", None]


def test_pictures_of_results_go_inside_where_the_model_takes_them() -> None:
    picture = Media(kind="image", mime="image/png", data=PNG)
    sound = Media(kind="audio", mime="audio/wav", data="UklGRg==")
    answer = ToolResult(call_id="c1", content=(Text(text="see"), picture, sound))
    turns = (user("a"), assistant(weather("c1", SIGNED)), tool(answer), user("b"))
    inline = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    heard = {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}}
    newer = contents(*turns, model="gemini-3-flash")
    assert newer[2]["parts"][0]["functionResponse"]["parts"] == [inline]  # type: ignore[index]
    assert newer[3] == {"role": "user", "parts": [heard, {"text": "b"}]}
    older = contents(*turns, model="gemini-2.5-flash")
    assert "parts" not in older[2]["parts"][0]["functionResponse"]  # type: ignore[index]
    assert older[3] == {"role": "user", "parts": [inline, heard, {"text": "b"}]}


def test_a_refusal_is_text_again() -> None:
    assert contents(user("a"), assistant(Refusal("no")))[1]["parts"] == [{"text": "no"}]


def test_what_gemini_cannot_say_of_a_message_is_told() -> None:
    call = a_call(
        Message(role="user", name="Ada", parts=(Text(text="a", cache=CacheMark()),)),
        assistant(Opaque("anthropic", {"type": "server_tool_use"}), "b"),
        Message(role="user", parts=(Text(text="c", extra={"citations": []}),), extra={"id": "m"}),
    )
    assert dropped(call) == (
        "messages.name",
        "cache",
        "messages.assistant.server_tool_use",
        "messages.extra.id",
        "messages.extra.citations",
    )
