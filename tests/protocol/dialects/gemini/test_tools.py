"""Tools and the choice among them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.protocol.dialects.gemini import GeminiProvider, VertexAi
from headrace.protocol.neutral.call import HostedTool, Tool, ToolChoice
from headrace.protocol.neutral.part import CacheMark
from tests.protocol.dialects.gemini.samples import a_call, dropped, user, written

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}
WEATHER = Tool(name="weather", description="tells it", parameters=SCHEMA)
TIME = Tool(name="time")
SEARCH = HostedTool("gemini", {"googleSearch": {}})


def calling(choice: ToolChoice | None, *tools: Tool) -> Any:
    body = written(a_call(user("hi"), tools=tools, tool_choice=choice))
    return body.get("toolConfig", {}).get("functionCallingConfig")


def test_functions_are_declared_in_one_entry() -> None:
    body = written(a_call(user("hi"), tools=(WEATHER, TIME)))
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {"name": "weather", "description": "tells it", "parametersJsonSchema": SCHEMA},
                {"name": "time", "description": ""},
            ]
        }
    ]
    assert "toolConfig" not in body


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (None, None),
        (ToolChoice("auto"), {"mode": "AUTO"}),
        (ToolChoice("none"), {"mode": "NONE"}),
        (ToolChoice("required"), {"mode": "ANY"}),
        (ToolChoice("one", "time"), {"mode": "ANY", "allowedFunctionNames": ["time"]}),
    ],
)
def test_choices(choice: ToolChoice | None, config: dict[str, Any] | None) -> None:
    assert calling(choice, WEATHER, TIME) == config


def test_strict_functions_are_validated() -> None:
    strict = Tool(name="a", strict=True)
    assert calling(None, strict) == {"mode": "VALIDATED"}
    assert calling(ToolChoice("auto"), strict) == {"mode": "VALIDATED"}
    assert calling(ToolChoice("required"), strict) == {"mode": "ANY"}
    mixed = a_call(user("hi"), tools=(strict, TIME))
    assert "toolConfig" not in written(mixed)
    assert dropped(mixed) == ("tools.strict",)
    assert dropped(a_call(user("hi"), tools=(Tool(name="a", strict=False),))) == ()


def test_a_choice_without_functions_says_nothing() -> None:
    for kind, told in (("auto", ()), ("none", ()), ("required", ("tool_choice",))):
        call = a_call(user("hi"), tool_choice=ToolChoice(kind))  # type: ignore[arg-type]
        assert "toolConfig" not in written(call)
        assert dropped(call) == told


def test_googles_own_tools_and_others() -> None:
    other = HostedTool("anthropic", {"type": "web_search_20250305", "name": "web_search"})
    call = a_call(user("hi"), tools=(SEARCH, other, HostedTool("openai", {})))
    assert written(call)["tools"] == [{"googleSearch": {}}]
    assert dropped(call) == ("tools.web_search_20250305", "tools.openai")


def test_both_kinds_side_by_side_are_asked_for_on_the_gemini_api_from_3_on() -> None:
    call = a_call(user("hi"), tools=(SEARCH, TIME))
    newer = written(call, "gemini-3-flash-preview")
    assert newer["toolConfig"] == {"includeServerSideToolInvocations": True}
    assert [next(iter(one)) for one in newer["tools"]] == ["googleSearch", "functionDeclarations"]
    assert "toolConfig" not in written(call, "gemini-2.5-flash")
    vertex = GeminiProvider(place=VertexAi(project="p", location="global"))
    assert "toolConfig" not in written(call, "gemini-3-flash-preview", vertex)


def test_what_cannot_be_said_of_tools_is_told() -> None:
    odd = Tool(name="a", parameters={"type": "object", "not": {}}, cache=CacheMark())
    call = a_call(user("hi"), tools=(odd,), parallel_tool_calls=False)
    assert dropped(call) == ("tools.parameters.not", "cache", "parallel_tool_calls")
    assert dropped(a_call(user("hi"), tools=(TIME,), parallel_tool_calls=True)) == ()
